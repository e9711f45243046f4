//! Cluster features in clusters of real members: on for all or for none, from one index on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;

use common::cluster::Cluster;
use common::eventually;
use common::gates::{self, MECHANISM, NO_MECHANISM, restart_with};
use common::requests::put;
use common::stored::{bucket, logged_requests};
use portunus_proto::etcdserverpb::FeatureGateDetail;
use portunus_proto::membershippb::ClusterVersionSetRequest;

const FEATURE: &str = "LeaseCheckpoint";

fn wants(value: bool) -> String {
    gates::wants(&format!("{FEATURE}={value}"))
}

async fn detail(cluster: &Cluster, member: usize) -> FeatureGateDetail {
    gates::detail(cluster, member, FEATURE).await
}

async fn until_feature(cluster: &Cluster, enabled: bool) -> u64 {
    gates::until_feature(cluster, FEATURE, enabled).await
}

/// Waits until every member has the flags and the version of a member.
async fn is_published(cluster: &Cluster, member: usize) {
    let word = serde_json::json!({"version":"3.8","featureGates":{FEATURE:true}});
    for other in cluster.running() {
        let ask = async || {
            let answer = cluster.ask_peer_port(other, "GET", "/members", &[], &[]);
            let members: serde_json::Value = serde_json::from_str(&answer.await.body).unwrap();
            let mut members = members.as_array().unwrap().iter();
            let name = &cluster.members[member].name;
            let said = members.find(|it| it["name"] == **name)?;
            (said["proposedClusterParams"] == word).then_some(())
        };
        eventually("a member's word on another", ask).await;
    }
}

/// Enabling a feature takes every voter, disabling it takes one; a member that is down obeys
/// when it returns; no member ever shows another value.
/// Proves: S0-1, S0-5, S0-18, S0-19, S0-26, S0-29
#[tokio::test(flavor = "multi_thread")]
async fn feature_has_the_same_value_on_all_members() {
    let mut cluster = Cluster::start("gates-rolling", 3, &[MECHANISM]).await;
    until_feature(&cluster, false).await;
    // One member after the other proposes it; only the last proposal turns it on.
    for member in 0..3 {
        assert!(!detail(&cluster, member).await.enabled);
        restart_with(&mut cluster, member, &[wants(true)]).await;
        is_published(&cluster, member).await;
    }
    let on_at = until_feature(&cluster, true).await;
    let votes = detail(&cluster, 0).await.votes;
    assert_eq!(votes.len(), 3);
    assert!(votes.iter().all(|vote| vote.vote == "true"), "{votes:?}");

    // One veto, while another member is down.
    cluster.kill(2);
    restart_with(&mut cluster, 1, &[wants(false)]).await;
    let off_at = until_feature(&cluster, false).await;
    assert!(off_at > on_at, "{off_at} after {on_at}");
    cluster.start_one(2).await;
    until_feature(&cluster, false).await;
    // It survives the restart of all members, with the index that decided it.
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.start_all(&[0, 1, 2]).await;
    assert_eq!(until_feature(&cluster, false).await, off_at);
    gates::agree_on_gates(&cluster).await;
}

/// A new cluster has cluster features without any flag but the one that proposes them.
/// Proves: S0-A28
#[tokio::test(flavor = "multi_thread")]
async fn cluster_features_need_only_their_own_flag() {
    let mut cluster = Cluster::start("gates-default", 3, &[]).await;
    until_feature(&cluster, false).await;
    // The first decision may come before every member has published its proposal.
    eventually("every member votes by default", async || {
        let votes = detail(&cluster, 0).await.votes;
        let by_default = votes.iter().filter(|vote| vote.vote == "default");
        (by_default.count() == 3).then_some(())
    })
    .await;
    for member in 0..3 {
        restart_with(&mut cluster, member, &[wants(true)]).await;
    }
    until_feature(&cluster, true).await;
}

/// A learner obeys, but does not count; once promoted it counts.
/// Proves: S0-34, S0-35
#[tokio::test(flavor = "multi_thread")]
async fn learner_applies_decisions_and_votes_only_after_promotion() {
    let mut cluster = Cluster::start("gates-learner", 3, &[MECHANISM]).await;
    for member in 0..3 {
        restart_with(&mut cluster, member, &[wants(true)]).await;
    }
    until_feature(&cluster, true).await;
    let learner = cluster.prepare_member();
    cluster.members[learner].flags = vec![wants(false)];
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

/// Returns the names of all metrics.
fn metric_names(client: std::net::SocketAddr) -> BTreeSet<String> {
    let metrics = common::http_at(client, "GET", "/metrics", &[], &[]);
    let lines = metrics.body.lines();
    let names = lines.filter_map(|line| line.strip_prefix("# TYPE "));
    names
        .map(|rest| rest.split(' ').next().unwrap().to_owned())
        .collect()
}

/// With the mechanism off, by flag or by emulated version, a member writes and shows the same
/// entries, records and metrics as if there were no mechanism.
/// Proves: X15
#[tokio::test(flavor = "multi_thread")]
async fn disabled_mechanism_writes_no_gate_data() {
    for (flag, version) in [(NO_MECHANISM, "3.8"), ("--emulated-version=3.7", "3.7")] {
        nothing_is_written_of_gates(flag, version).await;
    }
}

async fn nothing_is_written_of_gates(flag: &str, version: &str) {
    let version = format!("\"etcdcluster\":\"{version}.0\"");
    let written = async |flags: &[&str]| {
        let (_guard, dir) = common::data_dir();
        let server = common::Server::start(&dir, flags);
        let mut clients = server.connect().await;
        // Long enough to be compressed, if that were on.
        let value = "v".repeat(10_000);
        clients.kv.put(put("/apply-tag/a", &value)).await.unwrap();
        // The version is decided once the member has published its attributes.
        eventually("the cluster version", async || {
            let said = server.get("/version").body;
            said.contains(&version).then_some(())
        })
        .await;
        let metrics = metric_names(server.address);
        let cluster = bucket(&mut clients, "cluster").await;
        let members = bucket(&mut clients, "members").await;
        let meta = bucket(&mut clients, "meta").await;
        let members: String = members
            .values()
            .map(|record| String::from_utf8(record.clone()).unwrap())
            .collect();
        server.stop();
        let keys: Vec<String> = cluster.into_keys().chain(meta.into_keys()).collect();
        (logged_requests(&dir), keys, members, metrics)
    };
    let (plain, keys, members, metrics) = written(&[flag]).await;
    // Every field of every entry, by name, so that a new one is noticed.
    for request in &plain {
        if let Some(set) = &request.cluster_version_set {
            assert_eq!(
                *set,
                ClusterVersionSetRequest {
                    ver: set.ver.clone(),
                    ..ClusterVersionSetRequest::default()
                }
            );
        }
        if let Some(set) = &request.cluster_member_attr_set {
            let attributes = set.member_attributes.as_ref().unwrap();
            assert_eq!(attributes.proposed_cluster_params, None);
        }
        assert!(request.wrapped.is_none(), "{request:?}");
    }
    let puts: Vec<_> = plain.iter().filter_map(|it| it.put.as_ref()).collect();
    assert_eq!(puts.len(), 1);
    assert_eq!(puts[0].value.len(), 10_000);
    let etcds = [
        "clusterVersion",
        "confState",
        "consistent_index",
        "storageVersion",
        "term",
    ];
    assert_eq!(keys, etcds);
    assert!(!members.contains("proposed"), "{members}");
    let of_gates = |name: &&String| {
        [
            "etcd_cluster_feature",
            "etcd_cluster_params",
            "portunus_server_client",
        ]
        .iter()
        .any(|start| name.starts_with(start))
    };
    assert_eq!(metrics.iter().find(of_gates), None);

    // With the flags, exactly these are there.
    let flags = [flag, MECHANISM, &gates::wants("LeaseCheckpoint=false")];
    let (used, keys, members, more) = written(&flags).await;
    let sets = used.iter().filter_map(|it| it.cluster_version_set.as_ref());
    assert!(sets.clone().any(|set| set.cluster_params.is_some()));
    assert!(keys.contains(&"clusterParams".to_owned()));
    assert!(members.contains("proposedClusterParams"), "{members}");
    assert!(metrics.is_subset(&more), "{metrics:?}");
    assert!(more.difference(&metrics).all(|name| of_gates(&name)));
    assert!(more.len() > metrics.len());
}

/// With the mechanism off, nothing is published, decided or stored.
/// Proves: X15
#[tokio::test(flavor = "multi_thread")]
async fn disabled_mechanism_publishes_and_stores_nothing() {
    let cluster = Cluster::start("gates-off", 3, &[NO_MECHANISM]).await;
    cluster.agree().await;
    for member in 0..3 {
        let members = cluster
            .ask_peer_port(member, "GET", "/members", &[], &[])
            .await;
        assert!(!members.body.contains("proposedClusterParams"));
        let log = cluster.members[member].log();
        assert!(!log.contains("cluster features decided"));
        assert!(gates::history(&cluster, member).await.is_empty());
        let client = cluster.members[member].client;
        let metrics = common::http_at(client, "GET", "/metrics", &[], &[]);
        assert!(!metrics.body.contains("etcd_cluster_feature"));
        assert!(!metrics.body.contains("etcd_cluster_params"));
    }
}
