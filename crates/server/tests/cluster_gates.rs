//! Cluster features in clusters of real members: on for all or for none, from one index on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::cluster::{Cluster, eventually};
use portunus_proto::etcdserverpb::{FeatureGateDetail, FeatureGateStatusRequest};

const FEATURE: &str = "LeaseCheckpoint";
const MECHANISM: &str = "--feature-gates=ClusterFeatureGate=true";

fn wants(value: bool) -> String {
    format!("--cluster-feature-gates={FEATURE}={value}")
}

async fn detail(cluster: &Cluster, member: usize) -> FeatureGateDetail {
    let request = FeatureGateStatusRequest {
        features: vec![FEATURE.to_owned()],
        all_known: true,
        ..FeatureGateStatusRequest::default()
    };
    let mut clients = cluster.clients(member);
    let answer = clients.maintenance.feature_gate_status(request).await;
    let answer = answer.unwrap().into_inner();
    let detail = answer.details.into_iter().next().unwrap_or_default();
    assert_eq!(answer.features[0].enabled, detail.enabled);
    detail
}

/// Waits until every running member says the same; returns the index that decided it.
async fn until_feature(cluster: &Cluster, enabled: bool) -> u64 {
    let mut indexes = Vec::new();
    for member in cluster.running() {
        let what = format!("{FEATURE}={enabled} on m{member}");
        let decided = eventually(&what, async || {
            let detail = detail(cluster, member).await;
            (detail.enabled == enabled).then_some(detail)
        })
        .await;
        indexes.push(decided.since_index);
    }
    // A member that was restarted since knows the value, not when it was decided.
    indexes.retain(|index| *index != 0);
    indexes.dedup();
    assert!(
        indexes.len() <= 1,
        "decided at different indexes: {indexes:?}"
    );
    indexes.first().copied().unwrap_or(0)
}

async fn restart_with(cluster: &mut Cluster, member: usize, flags: &[String]) {
    cluster.stop(member).await;
    cluster.nodes[member].flags = flags.to_vec();
    cluster.start_one(member).await;
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
    // And it survives all of them.
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.start_all(&[0, 1, 2]).await;
    until_feature(&cluster, false).await;
    cluster.agree().await;
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

/// Members of two minor versions cannot found a cluster together: one stops before it
/// serves, and says why.
/// Proves: S0-21
#[tokio::test(flavor = "multi_thread")]
async fn founders_of_two_versions_do_not_start() {
    let mut cluster = Cluster::places("gates-mixed", 3, &[MECHANISM]).await;
    cluster.nodes[2].flags = vec!["--emulated-version=3.7".to_owned()];
    for member in 0..3 {
        cluster.launch(member);
    }
    let (is_well, log) = cluster.ended(0).await;
    assert!(!is_well);
    assert!(log.contains("3.7") && log.contains("3.8"), "{log}");
    assert!(!log.contains(common::READY), "{log}");
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
        assert!(
            !cluster.nodes[member]
                .log()
                .contains("cluster features decided")
        );
    }
}
