//! The cluster version: it rises when all members support it, and falls when an operator
//! enables a downgrade; and the versions and data that members exchange at their peer port.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::HttpAnswer;
use common::cluster::Cluster;
use common::load::Load;
use common::requests::put;
use common::versions::{downgrade, emulate, until_cluster_version, until_no_downgrade, versions};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;
use portunus_proto::etcdserverpb::{
    HashKvRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseTimeToLiveRequest,
};
use portunus_proto::leasepb::{LeaseInternalRequest, LeaseInternalResponse};
use prost::Message;
use tonic::Status;

const SOME: u64 = 20;

fn behave_as(cluster: &mut Cluster, member: usize, version: &str) {
    cluster.members[member].flags = vec![emulate(version)];
}

/// Members are restarted one after the other with the next version; the cluster version follows
/// the last one, and clients are not affected.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_upgraded_by_rolling_restart() {
    let test = "cluster_is_upgraded_by_rolling_restart";
    let mut cluster = Cluster::prepare(test, 3, &[]).await;
    for member in 0..3 {
        behave_as(&mut cluster, member, "3.6");
    }
    cluster.start_all(&[0, 1, 2]).await;
    let load = Load::on_all(&mut cluster);
    until_cluster_version(&cluster, "3.6.0").await;
    for (version, before) in [("3.7", "3.6.0"), ("3.8", "3.7.0")] {
        for member in 0..3 {
            cluster.stop(member).await;
            behave_as(&mut cluster, member, version);
            cluster.start_one(member).await;
            assert!(versions(&cluster, member).await.0.starts_with(version));
            load.goes_on(&cluster, &[member], SOME).await;
            if member < 2 {
                assert_eq!(versions(&cluster, member).await.1, before);
            }
        }
        until_cluster_version(&cluster, &format!("{version}.0")).await;
        let status = cluster.status(0).await.unwrap();
        assert_eq!(status.storage_version, format!("{version}.0"));
    }
    load.judge(&cluster).await;
}

/// A member may join a cluster one minor below it, as it may start in one, and no further.
#[tokio::test(flavor = "multi_thread")]
async fn member_two_minors_above_the_cluster_does_not_join() {
    let test = "member_two_minors_above_the_cluster_does_not_join";
    let mut cluster = Cluster::prepare(test, 1, &[]).await;
    behave_as(&mut cluster, 0, "3.6");
    cluster.start_one(0).await;
    until_cluster_version(&cluster, "3.6.0").await;
    let new = cluster.prepare_member();
    cluster.add_member(new, true).await;
    cluster.launch(new);
    let (ended_well, log) = cluster.ended(new).await;
    let expected = "member m0 has version 3.6, and this one can only join members from 3.7 to 3.8:";
    assert!(!ended_well && log.contains(expected), "{log}");
    behave_as(&mut cluster, new, "3.7");
    cluster.start_one(new).await;
}

/// An operator enables the downgrade, the cluster version falls at once, members are restarted
/// one after the other, and the downgrade ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_downgraded_by_rolling_restart() {
    let test = "cluster_is_downgraded_by_rolling_restart";
    let mut cluster = Cluster::start(test, 3, &["--downgrade-check-time=1s"]).await;
    until_cluster_version(&cluster, "3.8.0").await;
    use DowngradeAction::{Cancel, Enable, Validate};
    let by = cluster.follower().await;
    let text = |result: Result<String, Status>| EtcdError::from_status(&result.unwrap_err());
    for action in [Validate, Enable] {
        for (target, refusal) in [
            ("3.6", EtcdError::InvalidDowngradeTargetVersion),
            ("3.8", EtcdError::InvalidDowngradeTargetVersion),
            ("3.9", EtcdError::InvalidDowngradeTargetVersion),
            ("three", EtcdError::WrongDowngradeVersionFormat),
            ("", EtcdError::WrongDowngradeVersionFormat),
        ] {
            let answer = downgrade(&cluster, by, action, target).await;
            assert_eq!(text(answer), Some(refusal), "{target:?}");
        }
    }
    // There is nothing to cancel, which is no error.
    assert_eq!(downgrade(&cluster, by, Cancel, "").await.unwrap(), "3.8");
    assert_eq!(
        downgrade(&cluster, by, Validate, "3.7.0").await.unwrap(),
        "3.8"
    );

    // Enabled and cancelled: the version rises again.
    assert_eq!(downgrade(&cluster, by, Enable, "3.7").await.unwrap(), "3.8");
    let enabled = cluster
        .ask_peer_port(by, "GET", "/downgrade/enabled", &[], &[])
        .await;
    assert_eq!((enabled.status, enabled.body.trim()), (200, "true"));
    let answer = downgrade(&cluster, by, Enable, "3.6").await;
    assert!(answer.is_err());
    until_cluster_version(&cluster, "3.7.0").await;
    downgrade(&cluster, by, Cancel, "").await.unwrap();
    until_cluster_version(&cluster, "3.8.0").await;
    let enabled = cluster
        .ask_peer_port(by, "GET", "/downgrade/enabled", &[], &[])
        .await;
    assert_eq!((enabled.status, enabled.body.trim()), (200, "false"));

    // A member of the lower version does not start without a downgrade.
    let early = cluster.follower().await;
    cluster.stop(early).await;
    behave_as(&mut cluster, early, "3.7");
    cluster.launch(early);
    let (ended_well, log) = cluster.ended(early).await;
    assert!(
        !ended_well && log.contains("3.8") && log.contains("3.7"),
        "{log}"
    );
    cluster.members[early].flags.clear();
    cluster.start_one(early).await;

    let load = Load::on_all(&mut cluster);
    downgrade(&cluster, by, Enable, "3.7.0").await.unwrap();
    until_cluster_version(&cluster, "3.7.0").await;
    for member in 0..3 {
        // Stopped cleanly or killed.
        if member == 1 {
            cluster.kill(member);
        } else {
            cluster.stop(member).await;
        }
        behave_as(&mut cluster, member, "3.7");
        cluster.start_one(member).await;
        load.goes_on(&cluster, &[member], SOME).await;
    }
    until_no_downgrade(&cluster).await;
    for member in 0..3 {
        let (server, of_cluster) = versions(&cluster, member).await;
        assert!(server.starts_with("3.7."), "{server}");
        assert_eq!(of_cluster, "3.7.0");
    }
    load.judge(&cluster).await;
}

/// Once `downgrade enable` has returned, a member that is killed and restarted with the target
/// version starts, however little of it was stored.
#[tokio::test(flavor = "multi_thread")]
async fn member_restarted_right_after_downgrade_enable_starts() {
    let test = "member_restarted_right_after_downgrade_enable_starts";
    let mut cluster = Cluster::start(test, 3, &["--downgrade-check-time=1s"]).await;
    for round in 0..4 {
        until_cluster_version(&cluster, "3.8.0").await;
        let restarted = cluster.follower().await;
        let by = (restarted + 1) % 3;
        downgrade(&cluster, by, DowngradeAction::Enable, "3.7")
            .await
            .unwrap();
        match round % 2 {
            0 => cluster.kill(restarted),
            _ => cluster.stop(restarted).await,
        }
        behave_as(&mut cluster, restarted, "3.7");
        cluster.start_one(restarted).await;
        assert_eq!(versions(&cluster, restarted).await.1, "3.7.0");
        // Cancelled, and back.
        downgrade(&cluster, by, DowngradeAction::Cancel, "")
            .await
            .unwrap();
        cluster.stop(restarted).await;
        cluster.members[restarted].flags.clear();
        cluster.start_one(restarted).await;
    }
    cluster.agree().await;
}

/// The cluster version is not lowered while a member is down, so a downgrade is not enabled
/// then and the error names the member.
#[tokio::test(flavor = "multi_thread")]
async fn downgrade_enable_names_the_member_that_does_not_answer() {
    let test = "downgrade_enable_names_the_member_that_does_not_answer";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    until_cluster_version(&cluster, "3.8.0").await;
    let down = cluster.follower().await;
    let by = (down + 1) % 3;
    cluster.kill(down);
    let refused = downgrade(&cluster, by, DowngradeAction::Enable, "3.7").await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let name = format!("member m{down} does not answer");
    assert!(refused.message().contains(&name), "{refused}");
    let status = cluster.status(by).await.unwrap();
    assert!(!status.downgrade_info.unwrap().enabled);
    assert_eq!(status.storage_version, "3.8.0");
    cluster.start_one(down).await;
    downgrade(&cluster, by, DowngradeAction::Enable, "3.7")
        .await
        .unwrap();
    for member in 0..3 {
        assert_eq!(versions(&cluster, member).await.1, "3.7.0");
    }
}

fn is_refused(answer: &HttpAnswer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
}

/// The paths of the peer port besides raft's, and bad requests to them.
#[tokio::test(flavor = "multi_thread")]
async fn peer_endpoints_serve_versions_members_hashes_and_leases() {
    let test = "peer_endpoints_serve_versions_members_hashes_and_leases";
    let cluster = Cluster::start(test, 3, &[]).await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    cluster.clients(0).kv.put(put("a", "b")).await.unwrap();
    let ask = async |member: usize, method: &str, path: &str, body: &[u8]| {
        cluster.ask_peer_port(member, method, path, &[], body).await
    };

    let answer = ask(leader, "GET", "/members", &[]).await;
    let members: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(members.as_array().unwrap().len(), 3);
    assert!(
        answer.head.to_lowercase().contains("x-etcd-cluster-id: "),
        "{}",
        answer.head
    );
    assert_eq!(
        versions(&cluster, follower).await.0,
        versions(&cluster, leader).await.0
    );
    is_refused(&ask(leader, "POST", "/members", &[]).await, 405);
    is_refused(&ask(leader, "GET", "/nothing", &[]).await, 404);

    cluster.agree().await;
    let hash = ask(leader, "GET", "/members/hashkv", br#"{"revision":2}"#).await;
    let hash: serde_json::Value = serde_json::from_str(&hash.body).unwrap();
    let request = HashKvRequest { revision: 2 };
    let same = cluster.clients(follower).maintenance.hash_kv(request).await;
    assert_eq!(hash["hash"], u64::from(same.unwrap().into_inner().hash));
    is_refused(&ask(leader, "GET", "/members/hashkv", b"{").await, 400);
    let answer = ask(leader, "GET", "/members/hashkv", br#"{"revision":1000}"#).await;
    is_refused(&answer, 400);
    assert!(
        answer
            .body
            .contains("required revision is a future revision"),
        "{answer:?}"
    );
    let stranger = [("X-Etcd-Cluster-ID", "7")];
    let answer = cluster.ask_peer_port(leader, "GET", "/members/hashkv", &stranger, b"{}");
    is_refused(&answer.await, 412);

    is_refused(&ask(leader, "POST", "/members/promote/7", &[]).await, 404);
    is_refused(&ask(leader, "GET", "/members/promote/7", &[]).await, 405);
    let voter = format!("/members/promote/{}", cluster.members[leader].id);
    is_refused(&ask(leader, "POST", &voter, &[]).await, 412);
    let answer = ask(leader, "POST", "/members/promote/seven", &[]).await;
    assert!(answer.status >= 400 && answer.status < 500, "{answer:?}");

    let grant = LeaseGrantRequest { id: 5, ttl: 60 };
    cluster
        .clients(follower)
        .lease
        .lease_grant(grant)
        .await
        .unwrap();
    let renewal = |id| LeaseKeepAliveRequest { id }.encode_to_vec();
    let answer = ask(leader, "POST", "/leases", &renewal(5)).await;
    let renewed = LeaseKeepAliveResponse::decode(answer.body.as_bytes()).unwrap();
    assert_eq!((renewed.id, renewed.ttl), (5, 60));
    is_refused(&ask(leader, "POST", "/leases", &renewal(6)).await, 404);
    is_refused(&ask(leader, "GET", "/leases", &[]).await, 405);
    is_refused(&ask(leader, "POST", "/leases", &[0xff; 16]).await, 400);
    is_refused(
        &ask(leader, "POST", "/leases", &vec![0; 100_000]).await,
        413,
    );
    let question = |id| {
        let request = LeaseTimeToLiveRequest { id, keys: false };
        LeaseInternalRequest {
            lease_time_to_live_request: Some(request),
        }
        .encode_to_vec()
    };
    let answer = ask(leader, "POST", "/leases/internal", &question(5)).await;
    let answer = LeaseInternalResponse::decode(answer.body.as_bytes()).unwrap();
    assert_eq!(answer.lease_time_to_live_response.unwrap().granted_ttl, 60);
    is_refused(
        &ask(leader, "POST", "/leases/internal", &question(6)).await,
        404,
    );
    is_refused(&ask(leader, "POST", "/leases/internal", &[]).await, 400);
    // A follower does not know the remaining TTL of leases.
    let answer = ask(follower, "POST", "/leases", &renewal(5)).await;
    assert!(answer.status >= 400, "{answer:?}");
}

/// A request of a member of another cluster, at an address that belongs to this one by now.
/// etcd's members send no cluster id at these paths, and are answered.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_peers_that_name_another_cluster_are_refused() {
    let test = "requests_of_peers_that_name_another_cluster_are_refused";
    let cluster = Cluster::start(test, 1, &[]).await;
    let grant = LeaseGrantRequest { id: 5, ttl: 60 };
    cluster.clients(0).lease.lease_grant(grant).await.unwrap();
    let header = cluster.status(0).await.unwrap().header.unwrap();
    let own = format!("{:x}", header.cluster_id);

    let voter = format!("/members/promote/{}", cluster.members[0].id);
    let renewal = LeaseKeepAliveRequest { id: 5 }.encode_to_vec();
    let question = LeaseInternalRequest {
        lease_time_to_live_request: Some(LeaseTimeToLiveRequest { id: 5, keys: false }),
    };
    for (method, path, body, without, refusal) in [
        ("POST", "/leases", renewal, 200, ""),
        (
            "POST",
            "/leases/internal",
            question.encode_to_vec(),
            200,
            "",
        ),
        (
            "POST",
            "/members/promote/7",
            Vec::new(),
            404,
            "member not found",
        ),
        (
            "POST",
            &voter,
            Vec::new(),
            412,
            "can only promote a learner member",
        ),
        ("GET", "/members/hashkv", b"{}".to_vec(), 200, ""),
    ] {
        for named in [None, Some(own.as_str())] {
            let headers: Vec<_> = named
                .map(|id| ("X-Etcd-Cluster-ID", id))
                .into_iter()
                .collect();
            let asked = cluster.ask_peer_port(0, method, path, &headers, &body);
            let answer = asked.await;
            assert_eq!(answer.status, without, "{path} {named:?}: {answer:?}");
            assert!(answer.body.contains(refusal), "{path}: {answer:?}");
        }
        let stranger = [("X-Etcd-Cluster-ID", "7")];
        let asked = cluster.ask_peer_port(0, method, path, &stranger, &body);
        let answer = asked.await;
        assert_eq!(answer.status, 412, "{path}: {answer:?}");
        assert_eq!(answer.body.trim(), "cluster ID mismatch", "{path}");
    }
}
