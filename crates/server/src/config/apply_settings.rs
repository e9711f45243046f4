//! Settings that apply reads from flags, as in etcd: the number of learners and the minimum TTL
//! of a lease. Different values would produce different data from the same log, so members
//! compare them (`member/settings.rs`).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Config;

/// The settings of one member, as members exchange them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplySettings {
    /// The number of learners that apply allows.
    #[serde(rename = "maxLearners")]
    pub max_learners: usize,
    /// The minimum TTL of a lease, in seconds.
    #[serde(rename = "minLeaseTTLSeconds")]
    pub lease_ttl_s_min: i64,
}

impl ApplySettings {
    /// Returns the settings that follow from a member's flags.
    pub fn of(config: &Config) -> ApplySettings {
        ApplySettings {
            max_learners: config.cluster.max_learners,
            // As in etcd: one and a half election timeouts.
            lease_ttl_s_min: (config.election_timeout.as_secs_f64() * 1.5).ceil() as i64,
        }
    }

    /// The first setting in which another member differs.
    pub fn difference(self, theirs: ApplySettings, member: &str) -> Option<DifferentSettings> {
        let different = |flag, own: String, theirs: String| DifferentSettings {
            flag,
            own,
            theirs,
            member: member.to_owned(),
        };
        if self.max_learners != theirs.max_learners {
            let (own, theirs) = (self.max_learners, theirs.max_learners);
            return Some(different(
                "max-learners",
                own.to_string(),
                theirs.to_string(),
            ));
        }
        let shown =
            |settings: ApplySettings| format!("leases of at least {} s", settings.lease_ttl_s_min);
        (self.lease_ttl_s_min != theirs.lease_ttl_s_min)
            .then(|| different("election-timeout", shown(self), shown(theirs)))
    }
}

/// Two members whose settings differ.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "--{flag} differs: {own} here, {theirs} at member {member}; members with different values would come to hold different data: start every member with the same value, and to change it stop all members first"
)]
pub struct DifferentSettings {
    /// The flag the setting comes from.
    pub flag: &'static str,
    /// The value of this member.
    pub own: String,
    /// The value of the other member.
    pub theirs: String,
    /// The other member.
    pub member: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_names_flag_values_and_member() {
        let own = ApplySettings {
            max_learners: 1,
            lease_ttl_s_min: 2,
        };
        assert_eq!(own.difference(own, "m1"), None);
        let theirs = ApplySettings {
            max_learners: 3,
            ..own
        };
        let text = own.difference(theirs, "m1").unwrap().to_string();
        assert!(
            text.starts_with("--max-learners differs: 1 here, 3 at member m1;"),
            "{text}"
        );
        let theirs = ApplySettings {
            lease_ttl_s_min: 8,
            ..own
        };
        let text = own.difference(theirs, "m1").unwrap().to_string();
        let expected = "--election-timeout differs: leases of at least 2 s here, leases of at least 8 s at member m1;";
        assert!(text.starts_with(expected), "{text}");
    }
}
