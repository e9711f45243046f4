//! The mode of a comparison: whether clients are authenticated, and whether they use TLS.

use std::fmt;

use serde::Serialize;

use crate::workload::{Kind, Workload};

/// The mode in which both servers run. `Default` is the plain one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Mode {
    /// Whether authentication is enabled and requests carry a token.
    pub auth: bool,
    /// Whether clients connect with mutual TLS.
    pub tls: bool,
}

impl Mode {
    /// Returns whether a workload can run in this mode.
    #[must_use]
    pub fn supports(self, workload: &Workload) -> bool {
        match workload.kind {
            // Simple tokens end with the process.
            Kind::Restart(_) | Kind::LeaderChange(_) => !self.auth,
            // Only root changes the members, and the metrics are read without TLS.
            Kind::NewMember => !self.auth && !self.tls,
            Kind::Kv(_)
            | Kind::Txn(_)
            | Kind::Mixed
            | Kind::Watch
            | Kind::Lease(_)
            | Kind::Load
            | Kind::LoadBig => true,
        }
    }

    /// Returns the title of a workload in this mode.
    #[must_use]
    pub fn title_of(self, workload: &Workload) -> String {
        match self == Mode::default() {
            true => workload.title.to_owned(),
            false => format!("{self}: {}", workload.title),
        }
    }
}

/// The flags that select the mode.
impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match (self.auth, self.tls) {
            (false, false) => "plain",
            (true, false) => "--auth",
            (false, true) => "--tls",
            (true, true) => "--auth --tls",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{ONE_MEMBER, THREE_MEMBERS};

    const AUTH: Mode = Mode {
        auth: true,
        tls: false,
    };
    const TLS: Mode = Mode {
        auth: false,
        tls: true,
    };
    const BOTH: Mode = Mode {
        auth: true,
        tls: true,
    };

    fn unsupported(mode: Mode) -> Vec<&'static str> {
        let all = ONE_MEMBER.iter().chain(THREE_MEMBERS);
        let unsupported = all.filter(|workload| !mode.supports(workload));
        unsupported.map(|workload| workload.name).collect()
    }

    #[test]
    fn plain_mode_supports_every_workload_and_keeps_its_title() {
        assert!(unsupported(Mode::default()).is_empty());
        let put = &ONE_MEMBER[0];
        assert_eq!(Mode::default().title_of(put), put.title);
    }

    #[test]
    fn restarts_and_member_changes_are_unsupported_with_auth() {
        let expected = [
            "restart-killed",
            "restart-asked",
            "big-killed",
            "big-asked",
            "leader-change",
            "leader-stop",
            "snapshot-to-new-member",
        ];
        assert_eq!(unsupported(AUTH), expected);
        assert_eq!(unsupported(BOTH), expected);
        assert_eq!(unsupported(TLS), ["snapshot-to-new-member"]);
    }

    #[test]
    fn title_names_the_mode() {
        let put = "put, 1 connection, 1 client";
        for (mode, flags) in [(AUTH, "--auth"), (TLS, "--tls"), (BOTH, "--auth --tls")] {
            assert_eq!(mode.title_of(&ONE_MEMBER[0]), format!("{flags}: {put}"));
        }
    }
}
