//! The leader dies at each step of a decision about cluster features, in real processes.
//!
//! Each step is a line of the leader's log; the leader is killed when that line appears.
//! Clients that require the feature write all the time, and the feature shows in what they
//! write.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::cluster::Cluster;
use common::eventually;
use common::gates::{
    MECHANISM, Requiring, TAG, agree_on_decisions, agree_on_gates, restart_with, until_feature,
    wants,
};
use portunus_proto::membershippb::ClusterParamsDecision;

/// The log lines from a published proposal to params in force.
const MOMENTS: [&str; 4] = [
    "member attributes applied",
    "about to propose a decision",
    "a decision is proposed, not yet applied",
    "cluster features decided",
];
fn is_on(decision: &ClusterParamsDecision) -> bool {
    let features = decision.params.iter().flat_map(|it| &it.feature_gates);
    features.into_iter().any(|it| it.name == TAG && it.enabled)
}

/// Returns the member whose flags turn the feature on and off, and which does not lead
/// meanwhile (the last one), and the others.
fn voice_and_others(cluster: &Cluster) -> (usize, Vec<usize>) {
    let voice = cluster.members.len() - 1;
    (voice, (0..voice).collect())
}

/// Kills the leader when it logs `moment` while the flags of the voting member change, and
/// restarts it.
async fn lose_leader_at(cluster: &mut Cluster, moment: &str, clients: &Requiring, value: bool) {
    let before = agree_on_decisions(cluster).await;
    let (voice, others) = voice_and_others(cluster);
    cluster.stop(voice).await;
    let leader = cluster.leader_among(&others).await;
    let process = cluster.members[leader].process.take().unwrap();
    let (known_lines, text) = (process.log_line_count(), moment.to_owned());
    let killed = tokio::task::spawn_blocking(move || process.kill_at_line(known_lines, &text));
    cluster.members[voice].flags = vec![wants(&format!("{TAG}={value}"))];
    cluster.launch(voice);
    killed.await.unwrap();
    cluster.ready(voice).await;

    // The others decide without the leader that had begun.
    let decided_at = until_feature(cluster, TAG, value).await;
    clients.until_more(value).await;
    cluster.start_one(leader).await;
    assert_eq!(until_feature(cluster, TAG, value).await, decided_at);

    // Once, and every member has the same history.
    let after = agree_on_decisions(cluster).await;
    let since = &after[before.len()..];
    let changes = since.iter().filter(|it| is_on(it) == value).count();
    assert_eq!((changes, since.len()), (1, 1), "at {moment:?}: {since:?}");
    assert_eq!(since[0].index, decided_at);
    let by_itself = since[0].decided_by == cluster.members[leader].id;
    let by = if by_itself { "it" } else { "its successor" };
    eprintln!("lost m{leader} at {moment:?}: {by} decided, at {decided_at}");
}

async fn lose_leader_at_every_moment(test: &str, members: usize) {
    let flags = [MECHANISM, "--log-level=debug"];
    let mut cluster = Cluster::start(test, members, &flags).await;
    let (voice, others) = voice_and_others(&cluster);
    // Otherwise the first decision of the cluster would come with one of those below.
    eventually("the first decision", async || {
        let decisions = agree_on_decisions(&cluster).await;
        (!decisions.is_empty()).then_some(())
    })
    .await;
    for member in others {
        restart_with(&mut cluster, member, &[wants("ApplyTag=true")]).await;
    }
    let clients = Requiring::start(&cluster);
    for (moment, value) in MOMENTS.into_iter().zip([true, false, true, false]) {
        while cluster.leader().await == voice {
            // It may be refused while members have just restarted.
            let _ = cluster.move_leader(0).await;
        }
        lose_leader_at(&mut cluster, moment, &clients, value).await;
    }
    clients.judge(&cluster).await;
    agree_on_gates(&cluster).await;
}

/// Proves: S0-1, S0-26, S0-28, S0-48
#[tokio::test(flavor = "multi_thread")]
async fn decision_of_three_members_survives_leader_loss_at_every_step() {
    lose_leader_at_every_moment("leader_of_three_lost", 3).await;
}

/// Proves: S0-1, S0-26, S0-28, S0-48
#[tokio::test(flavor = "multi_thread")]
async fn decision_of_five_members_survives_leader_loss_at_every_step() {
    lose_leader_at_every_moment("leader_of_five_lost", 5).await;
}
