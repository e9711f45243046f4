//! Cluster features under load, lost leaders, and members that are down, replaced, upgraded and
//! downgraded.
//!
//! One feature shows in the data (`ApplyTag`), so members that disagree at one entry have
//! different hashes; clients that require it must find it in every acknowledged write.
//!
//! `PORTUNUS_CLUSTER_ROUNDS` repeats the scenarios that many times.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::cluster::Cluster;
use common::eventually;
use common::gates::{
    MECHANISM, NEWEST_ONLY, Requiring, TAG, agree_on_decisions, agree_on_gates, detail, history,
    requiring, restart_with, until_feature, wants, watch_gates,
};
use common::load::Load;
use common::requests::{get, put};
use common::stored::bucket;
use common::versions::{downgrade, emulate, until_cluster_version, until_no_downgrade};
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{
    FeatureGateStatusRequest, LeaseGrantRequest, WatchCreateRequest, WatchRequest,
};
use tokio_stream::StreamExt;
use tonic::Code;

fn rounds() -> usize {
    let rounds = std::env::var("PORTUNUS_CLUSTER_ROUNDS");
    rounds.map_or(1, |text| text.parse().expect("a number"))
}

/// The clients while features change. Not both at once: the linearizability check needs to know
/// every write.
enum Clients {
    /// Any requests, checked as one history.
    Anything(Load),
    /// Writes that require the feature.
    Requiring(Requiring),
}

impl Clients {
    async fn go_on(&self, cluster: &Cluster, is_on: bool) {
        match self {
            Clients::Anything(load) => load.goes_on(cluster, &cluster.running(), 20).await,
            Clients::Requiring(requiring) => requiring.until_more(is_on).await,
        }
    }

    async fn judge(self, cluster: &Cluster) {
        match self {
            Clients::Anything(load) => load.judge(cluster).await,
            Clients::Requiring(requiring) => requiring.judge(cluster).await,
        }
    }
}

/// Members are restarted one after the other, first with a feature and then without. Between,
/// leaders are killed during a decision, and a member is down for a whole change.
async fn features_change_under_load(mut cluster: Cluster, clients: Clients) {
    let count = cluster.running().len();
    let yes = wants("ApplyTag=true,LogCompression=true");
    let no = wants("ApplyTag=false,LogCompression=true");
    clients.go_on(&cluster, false).await;
    let mut last = 0;
    for _ in 0..rounds() {
        for member in 0..count {
            restart_with(&mut cluster, member, std::slice::from_ref(&yes)).await;
        }
        let on_at = until_feature(&cluster, TAG, true).await;
        assert!(on_at > last, "{on_at} after {last}");
        clients.go_on(&cluster, true).await;

        // A member that is down all the time, a veto, and a leader killed right after it.
        let away = cluster.follower().await;
        cluster.kill(away);
        let others: Vec<usize> = cluster.running();
        let leader = cluster.leader().await;
        let veto = *others.iter().find(|member| **member != leader).unwrap();
        if count > 3 {
            cluster.members[veto].flags = vec![no.clone()];
            cluster.kill(veto);
            cluster.launch(veto);
            cluster.kill(leader);
            cluster.ready(veto).await;
            cluster.start_one(leader).await;
        } else {
            restart_with(&mut cluster, veto, std::slice::from_ref(&no)).await;
        }
        let off_at = until_feature(&cluster, TAG, false).await;
        assert!(off_at > on_at, "{off_at} after {on_at}");
        clients.go_on(&cluster, false).await;
        cluster.start_one(away).await;
        until_feature(&cluster, TAG, false).await;

        // Once more, and all members lose power during the decision.
        cluster.stop(veto).await;
        cluster.members[veto].flags = vec![yes.clone()];
        cluster.launch(veto);
        cluster.ready(veto).await;
        for member in 0..count {
            cluster.kill(member);
        }
        let all: Vec<usize> = (0..count).collect();
        cluster.start_all(&all).await;
        last = until_feature(&cluster, TAG, true).await;
        clients.go_on(&cluster, true).await;
    }
    clients.judge(&cluster).await;
    let decisions = agree_on_gates(&cluster).await;
    assert!(decisions.len() >= 3, "{decisions:?}");
    assert!(decisions.is_sorted_by(|a, b| a.index < b.index));
}

/// Proves: S0-1, S0-2, S0-3, S0-5, S0-7, S0-28, S0-45, S0-A18, S1-5, S1-12, X9
#[tokio::test(flavor = "multi_thread")]
async fn three_members_switch_features_under_load() {
    let test = "three_members_switch_features_under_load";
    let cluster = Cluster::start(test, 3, &[MECHANISM, NEWEST_ONLY]).await;
    let clients = Clients::Requiring(Requiring::start(&cluster));
    features_change_under_load(cluster, clients).await;
}

/// Proves: S0-48
#[tokio::test(flavor = "multi_thread")]
async fn five_members_switch_features_under_load_and_lose_leaders() {
    let test = "five_members_switch_features_under_load";
    let mut cluster = Cluster::start(test, 5, &[MECHANISM, NEWEST_ONLY]).await;
    let clients = Clients::Anything(Load::on_all(&mut cluster));
    features_change_under_load(cluster, clients).await;
}

/// Requests that require a feature are refused while it is off, for every kind of request, and
/// an open watch ends when it goes off.
/// Proves: S0-4, S0-42, S0-43, S0-45, S0-A14, S0-A15, S0-A16, S0-A17, S0-A18, S1-8, S1-A4, X8
#[tokio::test(flavor = "multi_thread")]
async fn requests_may_require_a_feature() {
    let mut cluster = Cluster::start("requests_may_require", 3, &[MECHANISM]).await;
    let refused = async |cluster: &Cluster, member: usize, feature: &str| {
        let mut clients = cluster.clients(member);
        let status = |text: &str, code: Code| {
            assert_eq!(code, Code::FailedPrecondition, "{text}");
            assert!(text.contains(feature), "{text}");
        };
        let error = clients.kv.put(requiring(feature, put("a", "b"))).await;
        let error = error.unwrap_err();
        status(error.message(), error.code());
        let error = clients.kv.range(requiring(feature, get("a"))).await;
        let error = error.unwrap_err();
        status(error.message(), error.code());
        let grant = LeaseGrantRequest { id: 7, ttl: 60 };
        let error = clients.lease.lease_grant(requiring(feature, grant)).await;
        let error = error.unwrap_err();
        status(error.message(), error.code());
        let requests = requiring(feature, tokio_stream::empty::<WatchRequest>());
        let error = clients.watch.watch(requests).await.unwrap_err();
        status(error.message(), error.code());
    };
    refused(&cluster, 0, TAG).await;
    refused(&cluster, 1, "NoSuchFeature").await;
    // A server feature is no cluster feature, regardless of its value.
    refused(&cluster, 2, "FastLeaseKeepAlive").await;

    for member in 0..3 {
        restart_with(&mut cluster, member, &[wants("ApplyTag=true")]).await;
    }
    let on_at = until_feature(&cluster, TAG, true).await;
    let mut clients = cluster.clients(1);
    let name = "/apply-tag/a";
    let done = clients.kv.put(requiring(TAG, put(name, "b"))).await;
    done.unwrap();
    let read = clients.kv.range(requiring(TAG, get(name))).await;
    let value = read.unwrap().into_inner().kvs[0].value.clone();
    assert!(value.starts_with(b"b@"), "{value:?}");

    // Both levels by name, and requests without a name.
    let ask = async |features: &[&str], is_server_feature: bool| {
        let request = FeatureGateStatusRequest {
            is_server_feature,
            features: features.iter().map(|name| (*name).to_owned()).collect(),
            ..FeatureGateStatusRequest::default()
        };
        let mut clients = cluster.clients(2);
        let answer = clients.maintenance.feature_gate_status(request).await?;
        let answer = answer.into_inner();
        assert_eq!(answer.is_server_feature, is_server_feature);
        let pairs = answer.features.into_iter().map(|it| (it.name, it.enabled));
        Ok::<_, tonic::Status>(pairs.collect::<Vec<_>>())
    };
    let pairs = |pairs: &[(&str, bool)]| -> Vec<(String, bool)> {
        let owned = pairs.iter().map(|(name, on)| ((*name).to_owned(), *on));
        owned.collect()
    };
    assert_eq!(ask(&[], false).await.unwrap(), pairs(&[(TAG, true)]));
    let asked = ["NoSuchFeature", "FastLeaseKeepAlive", TAG];
    let told = [
        ("NoSuchFeature", false),
        ("FastLeaseKeepAlive", false),
        (TAG, true),
    ];
    assert_eq!(ask(&asked, false).await.unwrap(), pairs(&told));
    assert_eq!(ask(&[TAG], true).await.unwrap(), pairs(&[(TAG, false)]));
    let on = ask(&[], true).await.unwrap();
    assert!(
        on.contains(&("FastLeaseKeepAlive".to_owned(), true)),
        "{on:?}"
    );
    assert!(on.is_sorted());
    assert_eq!(
        ask(&[""], false).await.unwrap_err().code(),
        Code::InvalidArgument
    );

    // One watch requires it, another does not.
    let watch_all = || {
        let create = WatchCreateRequest {
            key: "/apply-tag/".into(),
            range_end: "/apply-tag0".into(),
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        tokio_stream::once(request).chain(tokio_stream::pending())
    };
    let mut requires = clients
        .watch
        .watch(requiring(TAG, watch_all()))
        .await
        .unwrap();
    let mut plain = cluster.clients(1).watch.watch(watch_all()).await.unwrap();
    let created = requires.get_mut().next().await.unwrap().unwrap();
    assert!(created.created);
    let created = plain.get_mut().next().await.unwrap().unwrap();
    assert!(created.created);
    let mut decisions = watch_gates(&cluster, 1, on_at).await;
    let mut from_now = watch_gates(&cluster, 1, 0).await;
    let now = from_now.next().await.unwrap().unwrap();
    assert_eq!(now.decision.unwrap().index, on_at);
    assert_eq!(now.changed[0].name, TAG);

    restart_with(&mut cluster, 0, &[]).await;
    let off_at = until_feature(&cluster, TAG, false).await;
    let ended = requires.get_mut().next().await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::FailedPrecondition);
    assert!(ended.message().contains(TAG), "{ended}");
    refused(&cluster, 1, TAG).await;
    clients.kv.put(put(name, "c")).await.unwrap();
    let event = plain.get_mut().next().await.unwrap().unwrap();
    assert_eq!(event.events[0].kv.as_ref().unwrap().value.as_ref(), b"c");
    for stream in [&mut decisions, &mut from_now] {
        let told = stream.next().await.unwrap().unwrap();
        assert_eq!(told.decision.unwrap().index, off_at);
        assert_eq!(
            (told.changed[0].name.as_str(), told.changed[0].enabled),
            (TAG, false)
        );
    }
    // Clients that waited the whole time find it in the history.
    let indexes: Vec<u64> = history(&cluster, 2)
        .await
        .iter()
        .map(|it| it.index)
        .collect();
    assert!(
        indexes.contains(&on_at) && indexes.contains(&off_at),
        "{indexes:?}"
    );
}

/// Returns the bytes of entries in the log of a stopped member.
fn log_bytes(cluster: &Cluster, member: usize) -> usize {
    let dir = cluster.members[member].dir.join("member/wal");
    let mut bytes = 0;
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|it| it == "wal") {
            let content = std::fs::read(path).unwrap();
            let end = content.iter().rposition(|byte| *byte != 0);
            bytes += end.map_or(0, |end| end + 1);
        }
    }
    bytes
}

/// Large requests take less space in the log; compressed entries are read after restarts, by
/// members that join later, and after the feature went off.
#[tokio::test(flavor = "multi_thread")]
async fn large_requests_are_compressed_in_the_log() {
    let mut cluster = Cluster::start("log_compression", 3, &[MECHANISM, NEWEST_ONLY]).await;
    let value = r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#.repeat(200);
    let fill = async |cluster: &Cluster, name: &str| {
        for number in 0..50 {
            let request = put(&format!("{name}{number}"), &value);
            cluster.clients(1).kv.put(request).await.unwrap();
        }
    };
    fill(&cluster, "plain").await;
    cluster.agree().await;
    cluster.stop(2).await;
    let plain_bytes = log_bytes(&cluster, 2);
    cluster.members[2].flags = vec![wants("LogCompression=true")];
    cluster.start_one(2).await;
    for member in [0, 1] {
        restart_with(&mut cluster, member, &[wants("LogCompression=true")]).await;
    }
    until_feature(&cluster, "LogCompression", true).await;
    fill(&cluster, "packed").await;
    cluster.agree().await;
    cluster.stop(2).await;
    let packed_bytes = log_bytes(&cluster, 2) - plain_bytes;
    assert!(
        packed_bytes * 5 < plain_bytes,
        "{packed_bytes} of {plain_bytes}"
    );
    cluster.start_one(2).await;

    // Replayed after a power failure, and read by a member that starts with the log.
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.start_all(&[0, 1, 2]).await;
    let new = cluster.prepare_member();
    cluster.members[new].flags = vec![wants("LogCompression=true")];
    cluster.add_member(new, false).await;
    cluster.start_one(new).await;
    cluster.agree().await;

    restart_with(&mut cluster, 0, &[]).await;
    until_feature(&cluster, "LogCompression", false).await;
    for member in 0..4 {
        cluster.kill(member);
    }
    cluster.start_all(&[0, 1, 2, 3]).await;
    agree_on_gates(&cluster).await;
    for name in ["plain", "packed"] {
        let found = cluster
            .clients(new)
            .kv
            .range(get(&format!("{name}7")))
            .await;
        assert_eq!(
            found.unwrap().into_inner().kvs[0].value.as_ref(),
            value.as_bytes()
        );
    }
}

/// One binary goes from 3.6 to 3.8 and back by its flags alone. Features appear with the
/// version that has them, in the entry that raises it, and vanish the same way.
/// Proves: S0-10, S0-13, S0-14, S0-22, S0-24, S0-25, S0-36, S0-37, S0-50, S0-A9, S0-A21, S0-A25,
/// S2-25, S2-50
#[tokio::test(flavor = "multi_thread")]
async fn features_follow_the_cluster_version_up_and_down() {
    let flags = ["--downgrade-check-time=1s"];
    let mut cluster = Cluster::prepare("features_and_versions", 3, &flags).await;
    for node in &mut cluster.members {
        node.flags = vec![emulate("3.6")];
    }
    cluster.start_all(&[0, 1, 2]).await;
    until_cluster_version(&cluster, "3.6").await;
    // As 3.6 would answer.
    let request = FeatureGateStatusRequest::default();
    let answer = cluster
        .clients(0)
        .maintenance
        .feature_gate_status(request)
        .await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
    let load = Load::on_all(&mut cluster);

    let to = async |cluster: &mut Cluster, flags: &[String]| {
        for member in 0..3 {
            restart_with(cluster, member, flags).await;
        }
    };
    let at_37 = [emulate("3.7"), MECHANISM.to_owned(), wants("ApplyTag=true")];
    to(&mut cluster, &at_37).await;
    until_cluster_version(&cluster, "3.7").await;
    until_feature(&cluster, TAG, true).await;
    let all = cluster.running();
    load.goes_on(&cluster, &all, 20).await;

    let at_38 = [
        MECHANISM.to_owned(),
        NEWEST_ONLY.to_owned(),
        wants("ApplyTag=true,LogCompression=true"),
    ];
    for (count, member) in (0..3).enumerate() {
        assert_eq!(
            detail(&cluster, 2 - count, "LogCompression").await.source,
            "unknown"
        );
        restart_with(&mut cluster, member, &at_38).await;
    }
    until_cluster_version(&cluster, "3.8").await;
    until_feature(&cluster, "LogCompression", true).await;
    let decisions = agree_on_decisions(&cluster).await;
    let first_38 = decisions
        .iter()
        .find(|it| it.cluster_version == "3.8")
        .unwrap();
    let params = first_38.params.as_ref().unwrap();
    assert_eq!(params.version, "3.8");
    let packed = params
        .feature_gates
        .iter()
        .find(|it| it.name == "LogCompression");
    assert!(
        packed.unwrap().enabled,
        "one entry brought the version and the feature"
    );
    // Every decision was made for the cluster version, so members of two versions ran together
    // all the time and none stopped because of it.
    for decision in &decisions {
        let params = decision.params.as_ref().unwrap();
        assert_eq!(params.version, decision.cluster_version);
    }
    for member in 0..3 {
        let log = cluster.members[member].log();
        assert!(!log.contains("does not fit"), "{log}");
    }
    load.goes_on(&cluster, &all, 20).await;

    // Enabled, cancelled half-way, enabled again.
    use DowngradeAction::{Cancel, Enable};
    switch_downgrade(&cluster, Enable, "3.7").await;
    until_cluster_version(&cluster, "3.7").await;
    restart_with(&mut cluster, 0, &at_37).await;
    assert!(detail(&cluster, 1, TAG).await.enabled);
    switch_downgrade(&cluster, Cancel, "").await;
    restart_with(&mut cluster, 0, &at_38).await;
    until_cluster_version(&cluster, "3.8").await;
    until_feature(&cluster, "LogCompression", true).await;
    switch_downgrade(&cluster, Enable, "3.7").await;
    until_cluster_version(&cluster, "3.7").await;
    // The log may hold entries that 3.7 cannot read; they are gone before a member of 3.7
    // starts.
    for member in 0..3 {
        eventually("the log is shortened", async || {
            let log = cluster.members[member].log();
            log.contains("snapshot of the log taken").then_some(())
        })
        .await;
    }
    to(&mut cluster, &at_37).await;
    until_feature(&cluster, TAG, true).await;
    until_no_downgrade(&cluster).await;
    load.goes_on(&cluster, &all, 20).await;

    // Below 3.7 there is no trace of it.
    switch_downgrade(&cluster, Enable, "3.6").await;
    until_cluster_version(&cluster, "3.6").await;
    to(&mut cluster, &[emulate("3.6")]).await;
    until_no_downgrade(&cluster).await;
    for member in 0..3 {
        eventually("attributes without proposals", async || {
            let members = cluster
                .ask_peer_port(member, "GET", "/members", &[], &[])
                .await;
            (!members.body.contains("proposedClusterParams")).then_some(())
        })
        .await;
    }
    load.judge(&cluster).await;
}

/// Records of a feature in the backend are removed in the entry that lowers the cluster version
/// below the first one that has it, on every member; until then they stay, whether it is on or
/// off.
/// Proves: S0-8
#[tokio::test(flavor = "multi_thread")]
async fn downgrade_removes_records_of_features() {
    let flags = [
        MECHANISM,
        "--emulated-version=3.7",
        "--downgrade-check-time=1s",
    ];
    let mut cluster = Cluster::start("features_clean_up", 3, &flags).await;
    let kept = async |cluster: &Cluster, member: usize| {
        let records = bucket(&mut cluster.clients(member), "cluster").await;
        let keys = ["applyTag", "clusterParams"];
        keys.map(|key| records.contains_key(key))
    };
    for member in 0..3 {
        restart_with(&mut cluster, member, &[wants("ApplyTag=true")]).await;
    }
    until_feature(&cluster, TAG, true).await;
    let request = requiring(TAG, put("/apply-tag/a", "b"));
    cluster.clients(0).kv.put(request).await.unwrap();
    restart_with(&mut cluster, 0, &[]).await;
    until_feature(&cluster, TAG, false).await;
    cluster.agree().await;
    for member in 0..3 {
        assert_eq!(kept(&cluster, member).await, [true, true]);
    }
    switch_downgrade(&cluster, DowngradeAction::Enable, "3.6").await;
    until_cluster_version(&cluster, "3.6").await;
    for member in 0..3 {
        assert_eq!(kept(&cluster, member).await, [false, false]);
    }
    cluster.agree().await;
}

/// Enables or cancels a downgrade. On a busy machine a member may answer late; then the request is
/// refused and sent again.
async fn switch_downgrade(cluster: &Cluster, action: DowngradeAction, version: &str) {
    let what = "every member to answer before the downgrade";
    eventually(what, async || {
        let leader = cluster.leader().await;
        match downgrade(cluster, leader, action, version).await {
            Ok(_) => Some(()),
            Err(status) if status.message().contains("does not answer") => None,
            Err(status) => panic!("{status}\n{}", cluster.logs()),
        }
    })
    .await;
}

/// A member is lost and replaced by one with other flags; the proposal of the lost one does not
/// count any more, that of the new one does.
/// Proves: S0-34, S1-13
#[tokio::test(flavor = "multi_thread")]
async fn proposal_of_a_replaced_member_no_longer_counts() {
    let mut cluster = Cluster::start("gates_replaced", 3, &[MECHANISM]).await;
    for member in 0..2 {
        restart_with(&mut cluster, member, &[wants("ApplyTag=true")]).await;
    }
    let reason = detail(&cluster, 0, TAG).await;
    assert!(!reason.enabled);
    // Losing the member without flags changes nothing, for as long as it is a member.
    cluster.kill(2);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!detail(&cluster, 0, TAG).await.enabled);
    let lost = cluster.members[2].id;
    cluster.remove_member(0, lost).await;
    let on_at = until_feature(&cluster, TAG, true).await;
    let new = cluster.prepare_member();
    cluster.add_member(new, false).await;
    cluster.start_one(new).await;
    let off_at = until_feature(&cluster, TAG, false).await;
    assert!(off_at > on_at);
    restart_with(&mut cluster, new, &[wants("ApplyTag=true")]).await;
    until_feature(&cluster, TAG, true).await;
    agree_on_gates(&cluster).await;
}

/// A forced new cluster of one member decides again, from that member's flags.
/// Proves: S0-A20
#[tokio::test(flavor = "multi_thread")]
async fn forced_new_cluster_decides_features_again() {
    let mut cluster = Cluster::start("gates_forced", 3, &[MECHANISM]).await;
    for member in 0..3 {
        restart_with(&mut cluster, member, &[wants("ApplyTag=true")]).await;
    }
    let on_at = until_feature(&cluster, TAG, true).await;
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.members[0].flags = vec![
        "--force-new-cluster".to_owned(),
        wants("LeaseCheckpoint=true"),
    ];
    cluster.start_one(0).await;
    let off_at = until_feature(&cluster, TAG, false).await;
    until_feature(&cluster, "LeaseCheckpoint", true).await;
    assert!(off_at > on_at);
    let members = cluster.ask_peer_port(0, "GET", "/members", &[], &[]).await;
    assert_eq!(members.body.matches("proposedClusterParams").count(), 1);
}
