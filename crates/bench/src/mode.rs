//! The mode of a comparison: whether clients are authenticated.

use std::fmt;

use serde::Serialize;

use crate::workload::{Kind, Workload};

/// The mode in which both servers run. `Default` is the plain one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Mode {
    /// Whether authentication is enabled and requests carry a token.
    pub auth: bool,
}

impl Mode {
    /// Returns whether a workload can run in this mode.
    #[must_use]
    pub fn supports(self, workload: &Workload) -> bool {
        match workload.kind {
            // Simple tokens end with the process, and only root changes the members.
            Kind::Restart(_) | Kind::LeaderChange(_) | Kind::NewMember => !self.auth,
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
        out.write_str(match self.auth {
            true => "--auth",
            false => "plain",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{ONE_MEMBER, THREE_MEMBERS};

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
        assert_eq!(unsupported(Mode { auth: true }), expected);
    }

    #[test]
    fn title_names_the_mode() {
        let title = Mode { auth: true }.title_of(&ONE_MEMBER[0]);
        assert_eq!(title, "--auth: put, 1 connection, 1 client");
    }
}
