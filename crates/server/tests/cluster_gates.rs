//! Cluster features in clusters of real members: on for all or for none, from one index on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::cluster::{Cluster, eventually};
use common::gates::{self, MECHANISM, restart_with};
use portunus_proto::etcdserverpb::FeatureGateDetail;

const FEATURE: &str = "LeaseCheckpoint";

fn wants(value: bool) -> String {
    gates::wants(&format!("{FEATURE}={value}"))
}

async fn detail(cluster: &Cluster, member: usize) -> FeatureGateDetail {
    gates::detail(cluster, member, FEATURE).await.unwrap()
}

async fn until_feature(cluster: &Cluster, enabled: bool) -> u64 {
    gates::until_feature(cluster, FEATURE, enabled).await
}

/// Turning a feature on takes every voter, turning it off takes one; a member that is down
/// obeys when it comes back; nobody ever sees anything else.
/// Proves: S0-1, S0-5, S0-26, S0-29
#[tokio::test(flavor = "multi_thread")]
async fn a_feature_is_on_for_all_or_for_none() {
    let mut cluster = Cluster::start("gates-rolling", 3, &[MECHANISM]).await;
    until_feature(&cluster, false).await;
    // One after the other says yes; only the last one's word turns it on.
    for member in 0..3 {
        assert!(!detail(&cluster, member).await.enabled);
        restart_with(&mut cluster, member, &[wants(true)]).await;
    }
    let on_at = until_feature(&cluster, true).await;
    let votes = detail(&cluster, 0).await.votes;
    assert_eq!(votes.len(), 3);
    assert!(votes.iter().all(|vote| vote.vote == "true"), "{votes:?}");

    // One veto, while another member is away.
    cluster.kill(2);
    restart_with(&mut cluster, 1, &[wants(false)]).await;
    let off_at = until_feature(&cluster, false).await;
    assert!(off_at > on_at, "{off_at} after {on_at}");
    cluster.start_one(2).await;
    until_feature(&cluster, false).await;
    // And it survives all of them, with the index that decided it.
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.start_all(&[0, 1, 2]).await;
    assert_eq!(until_feature(&cluster, false).await, off_at);
    gates::agree_on_gates(&cluster).await;
}

/// A learner obeys, but does not count; once promoted it does.
/// Proves: S0-34, S0-35
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_obeys_and_counts_only_when_promoted() {
    let mut cluster = Cluster::start("gates-learner", 3, &[MECHANISM]).await;
    for member in 0..3 {
        restart_with(&mut cluster, member, &[wants(true)]).await;
    }
    until_feature(&cluster, true).await;
    let learner = cluster.add_place();
    cluster.nodes[learner].flags = vec![wants(false)];
    let id = cluster.add_member(learner, true).await;
    cluster.start_one(learner).await;
    until_feature(&cluster, true).await;
    let votes = detail(&cluster, 0).await.votes;
    assert!(
        votes
            .iter()
            .any(|vote| vote.member_id == id && vote.vote == "learner")
    );
    let leader = cluster.leader_among(&[0, 1, 2]).await;
    eventually("the learner is promoted", async || {
        let request = portunus_proto::etcdserverpb::MemberPromoteRequest { id };
        let mut clients = cluster.clients(leader);
        clients.cluster.member_promote(request).await.ok()
    })
    .await;
    until_feature(&cluster, false).await;
}

/// Members of two minor versions cannot found a cluster together: whoever reads of the other
/// version stops and says why. A member is in the log before it serves, so no write is ever
/// applied by both.
/// Proves: S0-21, S0-A2
#[tokio::test(flavor = "multi_thread")]
async fn founders_of_two_versions_do_not_run_together() {
    let mut cluster = Cluster::places("gates-mixed", 3, &[MECHANISM]).await;
    cluster.nodes[2].flags = vec!["--emulated-version=3.7".to_owned()];
    for member in 0..3 {
        cluster.launch(member);
    }
    let ended = eventually("the end of a member", async || {
        let nodes = cluster.nodes.iter_mut().enumerate();
        let ended = nodes.filter_map(|(member, node)| {
            let process = node.process.as_mut()?;
            process.has_ended().then_some(member)
        });
        ended.collect::<Vec<usize>>().first().copied()
    })
    .await;
    let served = |member: usize| cluster.nodes[member].log().contains(common::READY);
    assert!(
        !(served(2) && (served(0) || served(1))),
        "{}",
        cluster.logs()
    );
    let (is_well, log) = cluster.ended(ended).await;
    assert!(!is_well);
    let why = log.lines().last().unwrap();
    assert!(why.contains("3.7") && why.contains("3.8"), "{log}");
    assert!(why.contains("member m"), "{log}");
}

/// With the mechanism off, nothing is published, decided or stored.
/// Proves: X15
#[tokio::test(flavor = "multi_thread")]
async fn without_the_mechanism_there_is_no_trace_of_it() {
    let cluster = Cluster::start("gates-off", 3, &[]).await;
    cluster.agree().await;
    for member in 0..3 {
        let members = cluster
            .ask_peer_port(member, "GET", "/members", &[], &[])
            .await;
        assert!(!members.body.contains("proposedClusterParams"));
        let log = cluster.nodes[member].log();
        assert!(!log.contains("cluster features decided"));
        assert!(gates::history(&cluster, member).await.is_empty());
        let client = cluster.nodes[member].client;
        let metrics = common::http_at(client, "GET", "/metrics", &[], &[]);
        assert!(!metrics.body.contains("etcd_cluster_feature"));
        assert!(!metrics.body.contains("etcd_cluster_params"));
    }
}
