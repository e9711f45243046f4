//! The progress of a downgrade.
//!
//! ```text
//!  None ──enable──▶ Requested ──version lowered──▶ Lowered ──restart──▶ Restarting
//!   ▲                   │ cancel                      │ cancel              │ all restarted
//!   └───────────────────┴─────────────────────────────┴──── Complete ◀──────┘
//! ```
//! From `Lowered` on a member may be restarted with the target version. The leader ends a
//! complete downgrade without an operator.

use std::fmt;

use crate::version::MajorMinor;

/// The state of a downgrade, with the members it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DowngradeState {
    /// No downgrade is in progress.
    None,
    /// The cluster version is still above the target.
    Requested {
        /// The target version.
        target: MajorMinor,
        /// The cluster version.
        cluster: MajorMinor,
        /// Members that do not answer version requests; until they do, the version stays.
        silent: Vec<String>,
    },
    /// The cluster version is the target; no member has been restarted yet.
    Lowered {
        /// The target version.
        target: MajorMinor,
        /// Members to restart.
        to_restart: Vec<String>,
    },
    /// Some members have been restarted with the target.
    Restarting {
        /// The target version.
        target: MajorMinor,
        /// Members to restart, those that do not answer included.
        to_restart: Vec<String>,
    },
    /// Every member runs the target.
    Complete {
        /// The target version.
        target: MajorMinor,
    },
}

impl DowngradeState {
    /// Returns the state from the cluster version, the target of an enabled downgrade, and
    /// each member's name with the version in its answer.
    pub fn new(
        cluster: Option<MajorMinor>,
        target: Option<MajorMinor>,
        members: &[(String, Option<MajorMinor>)],
    ) -> DowngradeState {
        let (Some(cluster), Some(target)) = (cluster, target) else {
            return DowngradeState::None;
        };
        let names = |is_wanted: &dyn Fn(Option<MajorMinor>) -> bool| {
            let wanted = members.iter().filter(|(_, version)| is_wanted(*version));
            wanted.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        if cluster > target {
            return DowngradeState::Requested {
                target,
                cluster,
                silent: names(&|version| version.is_none()),
            };
        }
        let to_restart = names(&|version| version != Some(target));
        match to_restart.len() {
            0 => DowngradeState::Complete { target },
            left if left == members.len() => DowngradeState::Lowered { target, to_restart },
            _ => DowngradeState::Restarting { target, to_restart },
        }
    }

    /// Returns the name of the state for programs.
    pub fn text(&self) -> &'static str {
        match self {
            DowngradeState::None => "none",
            DowngradeState::Requested { .. } => "requested",
            DowngradeState::Lowered { .. } => "lowered",
            DowngradeState::Restarting { .. } => "restarting",
            DowngradeState::Complete { .. } => "complete",
        }
    }
}

/// Formats the state and the next step in one line.
impl fmt::Display for DowngradeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DowngradeState::None => write!(f, "no downgrade is in progress"),
            DowngradeState::Requested {
                target,
                cluster,
                silent,
            } if silent.is_empty() => write!(
                f,
                "downgrade to {target} requested; the cluster version is still {cluster} and is about to be lowered: restart no member yet"
            ),
            DowngradeState::Requested {
                target,
                cluster,
                silent,
            } => write!(
                f,
                "downgrade to {target} requested; the cluster version stays {cluster} until every member answers: start or remove {}, or run `downgrade cancel`",
                silent.join(", ")
            ),
            DowngradeState::Lowered { target, to_restart }
            | DowngradeState::Restarting { target, to_restart } => write!(
                f,
                "the cluster version is {target}: restart with version {target}, one by one: {}",
                to_restart.join(", ")
            ),
            DowngradeState::Complete { target } => {
                write!(
                    f,
                    "every member runs version {target}: the downgrade is complete"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downgrade_state_follows_the_cluster_version_and_the_members() {
        let version = |text: &str| text.parse::<MajorMinor>().unwrap();
        let named = |versions: [&str; 3]| {
            let members = versions.into_iter().enumerate();
            members
                .map(|(number, text)| (format!("m{number}"), text.parse().ok()))
                .collect::<Vec<_>>()
        };
        for (cluster, target, members, state, mentions) in [
            ("3.8", "", ["3.8", "3.8", "3.8"], "none", "no downgrade"),
            (
                "3.8",
                "3.7",
                ["3.8", "3.8", "3.8"],
                "requested",
                "no member yet",
            ),
            (
                "3.8",
                "3.7",
                ["3.8", "", "3.8"],
                "requested",
                "start or remove m1,",
            ),
            ("3.7", "3.7", ["3.8", "3.8", "3.8"], "lowered", "m0, m1, m2"),
            ("3.7", "3.7", ["3.7", "3.8", ""], "restarting", "m1, m2"),
            ("3.7", "3.7", ["3.7", "3.7", "3.7"], "complete", "complete"),
        ] {
            let target = (!target.is_empty()).then(|| version(target));
            let found = DowngradeState::new(Some(version(cluster)), target, &named(members));
            assert_eq!(found.text(), state, "{members:?}");
            assert!(found.to_string().contains(mentions), "{found}");
        }
        assert_eq!(DowngradeState::new(None, None, &[]), DowngradeState::None);
    }
}
