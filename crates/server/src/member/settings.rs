//! Compares the settings that apply depends on ([`ApplySettings`]) with those of the other
//! members: before this member takes part, and at an interval while it leads. Members of etcd
//! cannot be asked.

use std::collections::BTreeSet;
use std::time::Duration;

use portunus_proto::ClusterId;
use portunus_rafthttp::PeerClient;

use super::Member;
use crate::config::{ApplySettings, Config, DifferentSettings};
use crate::peers::ask::{Asked, ask_each};
use portunus_statemachine::membership::{MemberRecord, hex};

/// Longest wait for one member's settings.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Time between two comparisons by the leader.
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);

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
    cluster_id: ClusterId,
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
pub async fn compare(member: &Member) -> Result<(), DifferentSettings> {
    let membership = member.cluster.membership_full();
    let others = others(
        &member.process.config,
        member.cluster.own_id().0,
        membership.iter(),
    );
    let own = ApplySettings::of(&member.process.config);
    let client = member.peers.client();
    let mut found = differences(client, member.cluster.identity.cluster_id, own, others).await;
    match found.pop() {
        Some(different) => Err(different),
        None => Ok(()),
    }
}

/// While this member leads, warns about and counts members with different settings.
pub async fn warn_about_differences(member: &Member) {
    let mut shown = BTreeSet::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(COMPARE_INTERVAL) => {}
            () = member.process.stop.stopped() => return,
        }
        let metric = &member.process.metrics.settings_mismatch;
        let leads = member.leads();
        let found = match leads {
            true => {
                let membership = member.cluster.membership_full();
                let own_id = member.cluster.own_id().0;
                let others = others(&member.process.config, own_id, membership.iter());
                let own = ApplySettings::of(&member.process.config);
                let client = member.peers.client();
                differences(client, member.cluster.identity.cluster_id, own, others).await
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
