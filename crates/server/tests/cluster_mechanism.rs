//! Enabling and disabling the mechanism of cluster features in clusters of real members: an
//! ordinary rolling restart, in any order, that may stop half-way.
//!
//! A member with the mechanism off publishes no proposal, so no feature is on; it obeys params,
//! and as leader it decides. The feature [`TAG`] shows in the data, so members that disagree at
//! one entry have different hashes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::cluster::Cluster;
use common::eventually;
use common::gates::{
    MECHANISM, NO_MECHANISM, Requiring, TAG, agree_on_decisions, agree_on_gates, detail, history,
    restart_with, until_feature, wants,
};
use common::requests::{get, put};
use common::stored::bucket;
use common::versions::{downgrade, emulate, until_cluster_version, until_no_downgrade};
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;

/// Flags of a member that proposes the feature.
fn on() -> Vec<String> {
    vec![MECHANISM.to_owned(), wants("ApplyTag=true")]
}

/// Flags of a member that proposes nothing; those for cluster features have no effect.
fn off() -> Vec<String> {
    vec![NO_MECHANISM.to_owned(), wants("ApplyTag=true")]
}

/// Returns how many proposals a member has applied.
async fn proposals(cluster: &Cluster, member: usize) -> usize {
    let members = cluster
        .ask_peer_port(member, "GET", "/members", &[], &[])
        .await;
    members.body.matches("proposedClusterParams").count()
}

async fn until_proposals(cluster: &Cluster, count: usize) {
    for member in cluster.running() {
        let what = format!("{count} proposals at m{member}");
        eventually(&what, async || {
            (proposals(cluster, member).await == count).then_some(())
        })
        .await;
    }
}

/// Writes a value and returns the stored one.
async fn written(cluster: &Cluster, member: usize) -> String {
    let mut clients = cluster.clients(member);
    clients.kv.put(put("/apply-tag/a", "b")).await.unwrap();
    let read = clients.kv.range(get("/apply-tag/a")).await.unwrap();
    String::from_utf8(read.into_inner().kvs[0].value.to_vec()).unwrap()
}

/// One member starts with it and goes back, then all enable it, the leader disables and enables
/// it again, all disable it, and all lose power in between. Members that are restarted
/// unchanged always start.
/// Proves: S0-A11, S0-A27, X15
#[tokio::test(flavor = "multi_thread")]
async fn mechanism_is_turned_on_and_off_by_rolling_restarts() {
    let mut cluster = Cluster::prepare("mechanism_rolls", 3, &[]).await;
    for node in &mut cluster.members {
        node.flags = off();
    }
    cluster.start_all(&[0, 1, 2]).await;
    let clients = Requiring::start(&cluster);

    // One member alone: nothing is decided, the others start as before, and back.
    restart_with(&mut cluster, 1, &on()).await;
    until_proposals(&cluster, 1).await;
    for member in [0, 2] {
        restart_with(&mut cluster, member, &off()).await;
    }
    let told = detail(&cluster, 0, TAG).await;
    let silent = told.votes.iter().filter(|vote| vote.vote == "foreign");
    assert_eq!((told.enabled, silent.count()), (false, 2), "{told:?}");
    restart_with(&mut cluster, 1, &off()).await;
    until_proposals(&cluster, 0).await;
    for member in 0..3 {
        assert_eq!(history(&cluster, member).await, []);
    }
    clients.until_more(false).await;

    // All of them, with a crash of all members before the last one has published.
    restart_with(&mut cluster, 2, &on()).await;
    restart_with(&mut cluster, 0, &on()).await;
    assert!(!detail(&cluster, 1, TAG).await.enabled);
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.members[1].flags = on();
    cluster.start_all(&[0, 1, 2]).await;
    let on_at = until_feature(&cluster, TAG, true).await;
    assert!(written(&cluster, 0).await.starts_with("b@"));
    clients.until_more(true).await;

    // The leader with it off: all features go off, under any leader; and stay off after a
    // crash.
    let leader = cluster.leader().await;
    restart_with(&mut cluster, leader, &off()).await;
    let off_at = until_feature(&cluster, TAG, false).await;
    assert!(off_at > on_at, "{off_at} after {on_at}");
    until_proposals(&cluster, 2).await;
    eventually("the silent member leads", async || {
        cluster.move_leader(leader).await.ok()
    })
    .await;
    assert_eq!(written(&cluster, 0).await, "b");
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.start_all(&[0, 1, 2]).await;
    assert_eq!(until_feature(&cluster, TAG, false).await, off_at);

    // On again, then all off at once with a crash of all members in between: the new leader has
    // it off from the start, and still decides.
    restart_with(&mut cluster, leader, &on()).await;
    let on_at = until_feature(&cluster, TAG, true).await;
    for member in 0..3 {
        cluster.kill(member);
        cluster.members[member].flags = off();
    }
    cluster.start_all(&[0, 1, 2]).await;
    let off_at = until_feature(&cluster, TAG, false).await;
    assert!(off_at > on_at, "{off_at} after {on_at}");
    until_proposals(&cluster, 0).await;
    assert_eq!(written(&cluster, 2).await, "b");
    clients.judge(&cluster).await;
    agree_on_gates(&cluster).await;
}

/// Params follow the version although the leader proposes nothing, and at 3.7, where the
/// mechanism is alpha, `AllAlpha` turns it on and its absence off again.
/// Proves: S0-37, S0-A27
#[tokio::test(flavor = "multi_thread")]
async fn leader_without_proposal_changes_params_with_the_version() {
    let flags = ["--downgrade-check-time=1s"];
    let mut cluster = Cluster::prepare("mechanism_versions", 1, &flags).await;
    cluster.members[0].flags = on();
    cluster.start_one(0).await;
    until_feature(&cluster, TAG, true).await;
    restart_with(&mut cluster, 0, &off()).await;
    until_feature(&cluster, TAG, false).await;
    let enable = async |cluster: &Cluster, version: &str| {
        let done = downgrade(cluster, 0, DowngradeAction::Enable, version).await;
        done.unwrap();
        until_cluster_version(cluster, version).await;
    };

    enable(&cluster, "3.7").await;
    let last = history(&cluster, 0).await.pop().unwrap();
    let params = last.params.unwrap();
    assert_eq!((&*last.cluster_version, &*params.version), ("3.7", "3.7"));
    let names: Vec<&str> = params.feature_gates.iter().map(|it| &*it.name).collect();
    assert!(names.contains(&TAG), "{names:?}");
    assert!(!names.contains(&"LogCompression"), "{names:?}");
    assert!(params.feature_gates.iter().all(|it| !it.enabled));
    restart_with(&mut cluster, 0, &[emulate("3.7")]).await;
    until_no_downgrade(&cluster).await;

    let all = "--feature-gates=AllAlpha=true".to_owned();
    let all = [emulate("3.7"), all, wants("ApplyTag=true")];
    restart_with(&mut cluster, 0, &all).await;
    until_feature(&cluster, TAG, true).await;
    restart_with(&mut cluster, 0, &[emulate("3.7")]).await;
    until_feature(&cluster, TAG, false).await;
    until_proposals(&cluster, 0).await;

    enable(&cluster, "3.6").await;
    let keys = bucket(&mut cluster.clients(0), "cluster").await;
    assert!(!keys.contains_key("clusterParams"), "{keys:?}");
    restart_with(&mut cluster, 0, &[emulate("3.6")]).await;
    until_no_downgrade(&cluster).await;
}

/// A single voter accepts a member that proposes nothing although a feature is on: that member
/// obeys, so it receives the log, and all features go off once it has published. The same holds
/// for a learner.
/// Proves: S0-A27
#[tokio::test(flavor = "multi_thread")]
async fn single_voter_accepts_members_without_proposals() {
    let mut cluster = Cluster::prepare("mechanism_grows", 1, &[]).await;
    cluster.members[0].flags = on();
    cluster.start_one(0).await;
    let on_at = until_feature(&cluster, TAG, true).await;
    assert!(written(&cluster, 0).await.starts_with("b@"));
    let second = cluster.prepare_member();
    cluster.members[second].flags = off();
    cluster.add_member(second, false).await;
    cluster.start_one(second).await;
    let off_at = until_feature(&cluster, TAG, false).await;
    assert!(off_at > on_at, "{off_at} after {on_at}");
    assert_eq!(written(&cluster, second).await, "b");
    restart_with(&mut cluster, second, &on()).await;
    until_feature(&cluster, TAG, true).await;
    // Both voters are needed for every entry, and one withdraws its proposal.
    restart_with(&mut cluster, 0, &off()).await;
    until_feature(&cluster, TAG, false).await;
    restart_with(&mut cluster, 0, &on()).await;
    until_feature(&cluster, TAG, true).await;

    let learner = cluster.prepare_member();
    cluster.members[learner].flags = off();
    let id = cluster.add_member(learner, true).await;
    assert!(
        detail(&cluster, 0, TAG).await.enabled,
        "not before it has started"
    );
    cluster.start_one(learner).await;
    until_feature(&cluster, TAG, false).await;
    agree_on_decisions(&cluster).await;
    cluster.remove_member(0, id).await;
    let (_, log) = cluster.ended(learner).await;
    assert!(log.contains("removed"), "{log}");
    until_feature(&cluster, TAG, true).await;
    assert!(written(&cluster, 0).await.starts_with("b@"));
    agree_on_gates(&cluster).await;
}
