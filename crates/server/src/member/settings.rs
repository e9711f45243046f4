//! Settings that apply reads from flags, as in etcd: the number of learners and the minimum TTL
//! of a lease. Different values would produce different data from the same log, so each member
//! compares its settings with the others' before it takes part, and the leader goes on comparing.
//! Members of etcd cannot be asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use portunus_rafthttp::PeerClient;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Member;
use crate::config::Config;
use crate::peers::ask::{Asked, ask_each};
use portunus_statemachine::membership::{MemberRecord, hex};

/// Longest wait for one member's settings.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Time between two comparisons by the leader.
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);

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
    fn difference(self, theirs: ApplySettings, member: &str) -> Option<DifferentSettings> {
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

/// A member to ask: its name for messages, and its peer URLs.
pub type ToAsk = (String, Vec<String>);

/// The other members: those in `known`, or those of `--initial-cluster` if there are none.
pub fn others<'a>(
    config: &Config,
    own_id: u64,
    known: impl IntoIterator<Item = &'a MemberRecord>,
) -> Vec<ToAsk> {
    let known = known.into_iter().filter(|record| record.id != own_id);
    let known: Vec<ToAsk> = known.map(to_ask).collect();
    if !known.is_empty() {
        return known;
    }
    let listed = config.cluster.initial_members.iter();
    listed
        .filter(|member| member.name != config.name)
        .map(|member| (member.name.clone(), member.peer_urls.clone()))
        .collect()
}

fn to_ask(record: &MemberRecord) -> ToAsk {
    let name = match record.name.as_str() {
        "" => hex(record.id),
        name => name.to_owned(),
    };
    (name, record.peer_urls.clone().unwrap_or_default())
}

/// Asks members of the same cluster at once and returns the first difference of each.
pub async fn differences(
    client: &PeerClient,
    cluster_id: u64,
    own: ApplySettings,
    others: Vec<ToAsk>,
) -> Vec<DifferentSettings> {
    let (names, urls): (Vec<String>, Vec<Vec<String>>) = others.into_iter().unzip();
    let settings = |peer: Asked| async move { peer.settings().await };
    let answers = ask_each(client, urls, ANSWER_TIME_MAX, settings).await;
    let answers = names.iter().zip(answers);
    answers
        .filter_map(|(name, answer)| {
            let (_, theirs) = answer.filter(|(cluster, _)| *cluster == cluster_id)?;
            own.difference(theirs, name)
        })
        .collect()
}

/// Compares this member's settings with the others' again, now that it answers them as well.
///
/// # Errors
/// If another member has different settings.
pub async fn compare(member: &Arc<Member>) -> Result<(), DifferentSettings> {
    let membership = member.membership.load_full();
    let others = others(&member.config, member.identity.member_id, membership.iter());
    let own = ApplySettings::of(&member.config);
    let client = member.peers.client();
    let mut found = differences(client, member.identity.cluster_id, own, others).await;
    match found.pop() {
        Some(different) => Err(different),
        None => Ok(()),
    }
}

/// While this member leads, warns about and counts members with different settings.
pub async fn warn_about_differences(member: Arc<Member>) {
    let mut shown = BTreeSet::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(COMPARE_INTERVAL) => {}
            () = member.stop.stopped() => return,
        }
        let metric = &member.metrics.settings_mismatch;
        let leads = member.consensus.status().leader == member.identity.member_id;
        let found = match leads {
            true => {
                let membership = member.membership.load_full();
                let own_id = member.identity.member_id;
                let others = others(&member.config, own_id, membership.iter());
                let own = ApplySettings::of(&member.config);
                let client = member.peers.client();
                differences(client, member.identity.cluster_id, own, others).await
            }
            false => Vec::new(),
        };
        let now: BTreeSet<(String, &str)> = found
            .iter()
            .map(|it| (it.member.clone(), it.flag))
            .collect();
        for (name, flag) in shown.difference(&now) {
            // The series may not exist, which is no failure.
            let _ = metric.remove_label_values(&[name.as_str(), flag]);
        }
        for different in &found {
            let labels = [different.member.as_str(), different.flag];
            metric.with_label_values(&labels).set(1);
            tracing::warn!(error = %different, "members run with different settings");
        }
        shown = now;
    }
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
