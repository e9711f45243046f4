//! Membership of a cluster: possible changes, refused changes and their errors, joining, and
//! the outcome of a refused join.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing;
use common::cluster::Cluster;
use common::requests::{get, put};
use common::{READY, eventually, refusal, soon};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseTimeToLiveRequest, MemberAddRequest,
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest, PutRequest,
};
use portunus_testkit::member::InitialState;
use tonic::Code;

fn refused(error: EtcdError, code: Code) -> (Code, String) {
    (code, error.text().to_owned())
}

/// Every refusal has etcd's text and code, on every member.
#[tokio::test(flavor = "multi_thread")]
async fn refused_membership_changes_have_etcd_texts() {
    let test = "refused_membership_changes_have_etcd_texts";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let add = |urls: &[&str], is_learner| MemberAddRequest {
        peer_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        is_learner,
    };
    let taken = cluster.members[1].peer_url();
    let leader = cluster.leader().await;
    // A cluster is healthy only some seconds after it started.
    let spare = cluster.prepare_member();
    let spare_id = cluster.add_member(spare, true).await;
    let follower = (leader + 1) % 3;
    for by in [leader, follower] {
        let mut members = cluster.clients(by).cluster;
        let bad_urls = refused(EtcdError::MemberBadUrls, Code::InvalidArgument);
        for urls in [
            &[][..],
            &["nonsense"],
            &["http://127.0.0.1"],
            &["http://127.0.0.1:1/path"],
            &["ftp://127.0.0.1:1"],
        ] {
            let answer = members.member_add(add(urls, false)).await;
            assert_eq!(refusal(answer), bad_urls, "{urls:?}");
        }
        let answer = members.member_add(add(&["http://127.0.0.1:1"], true)).await;
        let too_many = refused(EtcdError::TooManyLearners, Code::FailedPrecondition);
        assert_eq!(refusal(answer), too_many);

        let unknown = refused(EtcdError::MemberNotFound, Code::NotFound);
        let answer = members.member_remove(MemberRemoveRequest { id: 7 }).await;
        assert_eq!(refusal(answer), unknown);
        let answer = members.member_promote(MemberPromoteRequest { id: 7 }).await;
        assert_eq!(refusal(answer), unknown);
        let update = |id, url: &str| MemberUpdateRequest {
            id,
            peer_urls: vec![url.to_owned()],
        };
        let answer = members.member_update(update(7, "http://127.0.0.1:1")).await;
        assert_eq!(refusal(answer), unknown);
        let answer = members.member_update(update(spare_id, &taken)).await;
        let exists = refused(EtcdError::PeerUrlExists, Code::FailedPrecondition);
        assert_eq!(refusal(answer), exists);
        let answer = members.member_update(update(spare_id, "nonsense")).await;
        assert_eq!(refusal(answer), bad_urls);

        // It was never started, so its log is empty.
        let answer = members
            .member_promote(MemberPromoteRequest { id: spare_id })
            .await;
        let not_ready = refused(EtcdError::LearnerNotReady, Code::FailedPrecondition);
        assert_eq!(refusal(answer), not_ready);
        let id = cluster.members[0].id;
        let answer = members.member_promote(MemberPromoteRequest { id }).await;
        let no_learner = refused(EtcdError::MemberNotLearner, Code::FailedPrecondition);
        assert_eq!(refusal(answer), no_learner);
    }
    let mut members = cluster.clients(follower).cluster;
    members
        .member_remove(MemberRemoveRequest { id: spare_id })
        .await
        .unwrap();
    let answer = members.member_add(add(&[&taken], false)).await;
    let exists = refused(EtcdError::PeerUrlExists, Code::FailedPrecondition);
    assert_eq!(refusal(answer), exists);
    let answer = members
        .member_remove(MemberRemoveRequest { id: spare_id })
        .await;
    let unknown = refused(EtcdError::MemberNotFound, Code::NotFound);
    assert_eq!(refusal(answer), unknown);

    // Voters that never start: three of five are there, and a sixth would need a fourth.
    for url in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
        members.member_add(add(&[url], false)).await.unwrap();
    }
    let answer = members
        .member_add(add(&["http://127.0.0.1:3"], false))
        .await;
    let not_enough = refused(EtcdError::MemberNotEnoughStarted, Code::Unknown);
    assert_eq!(refusal(answer), not_enough);
    cluster.agree().await;
}

/// While a member is down, changes that could cost the quorum are refused; the member that is
/// down may be removed.
#[tokio::test(flavor = "multi_thread")]
async fn membership_change_that_risks_the_quorum_is_refused() {
    let mut cluster =
        Cluster::start("membership_change_that_risks_the_quorum_is_refused", 3, &[]).await;
    let down = cluster.follower().await;
    let id = cluster.members[down].id;
    cluster.kill(down);
    let by = cluster.leader().await;
    let other = (0..3).find(|it| *it != by && *it != down).unwrap();
    let mut members = cluster.clients(by).cluster;
    let add = MemberAddRequest {
        peer_urls: vec!["http://127.0.0.1:1".to_owned()],
        is_learner: false,
    };
    let unhealthy = refused(EtcdError::Unhealthy, Code::Unavailable);
    eventually("the leader to miss the member", async || {
        let answer = members.member_add(add.clone()).await;
        assert_eq!(refusal(answer), unhealthy);
        let active = MemberRemoveRequest {
            id: cluster.members[other].id,
        };
        (refusal(members.member_remove(active).await) == unhealthy).then_some(())
    })
    .await;
    let answer = members.member_remove(MemberRemoveRequest { id }).await;
    assert_eq!(answer.unwrap().into_inner().members.len(), 2);

    // It restarts, gets a response that it was removed, and stops.
    cluster.launch(down);
    let (ended_well, log) = cluster.ended(down).await;
    assert!(ended_well, "{log}");
    assert!(log.contains("was removed from the cluster"), "{log}");
    assert!(!log.contains(READY), "it served clients:\n{log}");
    cluster.agree().await;
}

/// A member that is removed while it runs stops by itself, the leader too; its clients get a
/// response that the removal was done.
#[tokio::test(flavor = "multi_thread")]
async fn removed_member_stops() {
    let mut cluster = Cluster::start("removed_member_stops", 5, &[]).await;
    let follower = cluster.follower().await;
    let leader = cluster.leader().await;
    cluster
        .remove_member(leader, cluster.members[follower].id)
        .await;
    let (ended_well, log) = cluster.ended(follower).await;
    assert!(
        ended_well && log.contains("was removed from the cluster"),
        "{log}"
    );

    cluster
        .remove_member(leader, cluster.members[leader].id)
        .await;
    let (ended_well, log) = cluster.ended(leader).await;
    assert!(
        ended_well && log.contains("was removed from the cluster"),
        "{log}"
    );
    let left = cluster.leader().await;
    assert_eq!(cluster.member_list(left).await.len(), 3);
    soon("a put", cluster.clients(left).kv.put(put("a", "b")))
        .await
        .unwrap();
    cluster.agree().await;
}

/// A linearizable member list is refused by a member that is cut off; a serializable one is
/// answered from its applied state. A member's peer URLs can be changed.
#[tokio::test(flavor = "multi_thread")]
async fn member_list_is_linearizable_or_serializable_as_requested() {
    let test = "member_list_is_linearizable_or_serializable_as_requested";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let member = cluster.follower().await;
    let others: Vec<usize> = (0..3).filter(|it| *it != member).collect();
    let listed = cluster.member_list(member).await;
    let names: Vec<&str> = listed.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names.len(), 3);
    assert!(
        ["m0", "m1", "m2"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    for one in &listed {
        let node = cluster
            .members
            .iter()
            .find(|node| node.name == one.name)
            .unwrap();
        assert_eq!(one.peer_urls, [node.peer_url()]);
        assert_eq!(one.client_urls, [format!("http://{}", node.client)]);
    }

    // A peer URL that resolves to the same address.
    let moved = cluster.members[member]
        .peer_url()
        .replace("127.0.0.1", "localhost");
    let request = MemberUpdateRequest {
        id: cluster.members[member].id,
        peer_urls: vec![moved.clone()],
    };
    let updated = cluster
        .clients(others[0])
        .cluster
        .member_update(request)
        .await;
    assert_eq!(updated.unwrap().into_inner().members.len(), 3);
    let listed = cluster.member_list(member).await;
    let own = listed
        .iter()
        .find(|it| it.id == cluster.members[member].id)
        .unwrap();
    assert_eq!(own.peer_urls, [moved]);
    assert_eq!(
        own.name, cluster.members[member].name,
        "an update keeps the rest"
    );
    cluster.agree().await;

    cluster.network.part(&[member], &others);
    let mut members = cluster.clients(member).cluster;
    let fresh = MemberListRequest { linearizable: true };
    eventually("the member to notice", async || {
        members.member_list(fresh).await.err()
    })
    .await;
    // It knows by now that there is no leader, and still waits for one.
    let late = members.member_list(fresh).await.unwrap_err();
    assert_eq!(late.message(), "etcdserver: request timed out");
    let any = MemberListRequest {
        linearizable: false,
    };
    assert_eq!(
        members
            .member_list(any)
            .await
            .unwrap()
            .into_inner()
            .members
            .len(),
        3
    );
    cluster.network.heal();
    cluster.agree().await;
}

/// Two of three disks are lost. The third member becomes a cluster of one with all its data, to
/// which others can be added.
#[tokio::test(flavor = "multi_thread")]
async fn forced_new_cluster_starts_from_the_last_member() {
    let test = "forced_new_cluster_starts_from_the_last_member";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    for number in 0..20 {
        let mut kv = cluster.clients(number % 3).kv;
        kv.put(put(&format!("k{number}"), "kept")).await.unwrap();
    }
    cluster.agree().await;
    let last = cluster.follower().await;
    for member in 0..3 {
        cluster.kill(member);
    }
    cluster.members[last].flags = vec!["--force-new-cluster".to_owned()];
    cluster.start_one(last).await;
    let listed = cluster.member_list(last).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    let mut kv = cluster.clients(last).kv;
    for number in 0..20 {
        let read = kv
            .range(get(&format!("k{number}")))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(read.kvs[0].value, "kept", "k{number}");
    }
    kv.put(put("after", "x")).await.unwrap();

    // Without the flag it stays a cluster of one.
    cluster.stop(last).await;
    cluster.members[last].flags.clear();
    cluster.start_one(last).await;
    assert_eq!(cluster.member_list(last).await.len(), 1);
    let other = (last + 1) % 3;
    cluster.wipe(other);
    cluster.add_member(other, false).await;
    cluster.start_one(other).await;
    cluster.agree().await;
    let read = cluster.clients(other).kv.range(get("after")).await.unwrap();
    assert_eq!(read.into_inner().kvs[0].value, "x");
}

/// A member that lists the wrong members cannot join, and its error names the next step.
#[tokio::test(flavor = "multi_thread")]
async fn join_with_a_wrong_initial_cluster_is_refused() {
    let test = "join_with_a_wrong_initial_cluster_is_refused";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let stranger = cluster.prepare_member();
    // It was not added.
    cluster.members[stranger].initial_cluster = cluster.initial_cluster(&[0, 1, 2, 3]);
    cluster.launch(stranger);
    let (ended_well, log) = cluster.ended(stranger).await;
    assert!(
        !ended_well && log.contains("lists 4 members, but the cluster has 3"),
        "{log}"
    );

    cluster.add_member(stranger, false).await;
    let missing = cluster.initial_cluster(&[0, 1, 3]);
    cluster.members[stranger].initial_cluster = missing;
    cluster.launch(stranger);
    let (ended_well, log) = cluster.ended(stranger).await;
    assert!(
        !ended_well && log.contains("lists 3 members, but the cluster has 4"),
        "{log}"
    );

    let wrong = format!(
        "{},m2=http://127.0.0.1:1",
        cluster.initial_cluster(&[0, 1, 3])
    );
    cluster.members[stranger].initial_cluster = wrong;
    cluster.launch(stranger);
    let (ended_well, log) = cluster.ended(stranger).await;
    assert!(
        !ended_well && log.contains("the cluster has no member at http://127.0.0.1:1"),
        "{log}"
    );

    let alone = format!("{},gone=http://127.0.0.1:1", cluster.initial_cluster(&[3]));
    cluster.members[stranger].initial_cluster = alone;
    cluster.launch(stranger);
    let (ended_well, log) = cluster.ended(stranger).await;
    assert!(
        !ended_well && log.contains("no member of the cluster answers"),
        "{log}"
    );

    // With the right list it joins.
    cluster.members[stranger].initial_cluster = cluster.initial_cluster(&[0, 1, 2, 3]);
    cluster.start_one(stranger).await;
    cluster.agree().await;
}

/// A founder that lost its data must not start over: its votes are lost.
#[tokio::test(flavor = "multi_thread")]
async fn founder_without_data_does_not_bootstrap_again() {
    let mut cluster = Cluster::start("founder_without_data_does_not_bootstrap_again", 3, &[]).await;
    let lost = cluster.follower().await;
    cluster.kill(lost);
    cluster.wipe(lost);
    cluster.launch(lost);
    let (ended_well, log) = cluster.ended(lost).await;
    assert!(
        !ended_well && log.contains("has already been bootstrapped"),
        "{log}"
    );
    cluster.agree().await;
}

/// A voter whose data directory was lost has lost its term and votes. With any
/// `--initial-cluster-state` it does not start until it was removed and added again.
#[tokio::test(flavor = "multi_thread")]
async fn started_member_with_lost_data_directory_does_not_rejoin() {
    let test = "started_member_with_lost_data_directory_does_not_rejoin";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let lost = cluster.follower().await;
    let by = (lost + 1) % 3;
    let id = cluster.members[lost].id;
    cluster.kill(lost);
    cluster.wipe(lost);
    cluster.members[lost].initial_state = InitialState::Existing;
    for is_mounted in [false, true] {
        let dir = cluster.members[lost].dir.clone();
        if is_mounted {
            std::fs::create_dir(&dir).unwrap();
        }
        cluster.launch(lost);
        let (ended_well, log) = cluster.ended(lost).await;
        assert!(!ended_well, "{log}");
        let why = log.lines().last().unwrap();
        assert!(why.contains(&format!("`member remove {id:x}`")), "{log}");
        assert!(why.contains("`member add m"), "{log}");
        assert!(!log.contains("panic"), "{log}");
        match is_mounted {
            false => assert!(!dir.exists()),
            true => assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0),
        }
    }

    cluster.remove_member(by, id).await;
    cluster.add_member(lost, false).await;
    cluster.start_one(lost).await;
    assert_ne!(cluster.members[lost].id, id);
    // With its directory it restarts, although the cluster lists it as started.
    cluster.kill(lost);
    cluster.start_one(lost).await;
    cluster.agree().await;
}

/// Apply reads the number of learners from a flag, so a member with another number would have
/// other members than the rest. It does not start while it can query one of them; one that
/// could not is warned about repeatedly.
#[tokio::test(flavor = "multi_thread")]
async fn member_with_other_settings_is_refused_or_warned_about() {
    let test = "member_with_other_settings_is_refused_or_warned_about";
    let mut cluster = Cluster::prepare(test, 3, &[]).await;
    cluster.start_all(&[0, 1]).await;
    cluster.members[2].flags = vec!["--max-learners=3".to_owned()];
    for is_founder in [true, false] {
        cluster.launch(2);
        let (ended_well, log) = cluster.ended(2).await;
        let why = log.lines().last().unwrap();
        assert!(!ended_well && !log.contains(READY), "{log}");
        let expected = "--max-learners differs: 3 here, 1 at member m";
        assert!(why.contains(expected), "{log}");
        assert!(!log.contains("listening for peers"), "{log}");
        if is_founder {
            // With the others' value the same directory starts; then it is changed.
            let flags = std::mem::take(&mut cluster.members[2].flags);
            cluster.start_one(2).await;
            // Without it the member would compare versions with the others first when it is
            // started again.
            let client = cluster.members[2].client;
            eventually("the cluster version to be decided", async || {
                let version = common::http_at(client, "GET", "/version", &[], &[]);
                let decided = r#""etcdcluster":"3.8.0""#;
                version.body.contains(decided).then_some(())
            })
            .await;
            cluster.stop(2).await;
            cluster.members[2].flags = flags;
        }
    }
    // Cut off, it can query no member.
    cluster.network.part(&[2], &[0, 1]);
    cluster.launch(2);
    let process = cluster.members[2].process.as_ref().unwrap();
    process.find_line("the log is not applied yet");
    cluster.network.heal();
    cluster.ready(2).await;
    let leader = cluster.leader().await;
    eventually("the leader to warn", async || {
        let log = cluster.members[leader].log();
        log.contains("members run with different settings")
            .then_some(())
    })
    .await;
    let client = cluster.members[leader].client;
    let metrics = common::http_at(client, "GET", "/metrics", &[], &[]);
    let metric = "portunus_server_settings_mismatch{flag=\"max-learners\"";
    assert!(metrics.body.contains(metric), "{}", metrics.body);
}

/// Starts a founder with other settings that responds only once the member at `member` does:
/// the two start together.
async fn founder_beside(member: SocketAddr) -> SocketAddr {
    const SETTINGS: &str = "/portunus/settings";
    let answer = move || {
        TcpStream::connect(member).ok()?;
        let own = common::http_at(member, "GET", SETTINGS, &[], &[]);
        let mut lines = own.head.lines();
        let cluster_id = lines.find_map(|line| line.strip_prefix("x-etcd-cluster-id: "));
        let settings = own.body.replace(r#""maxLearners":1"#, r#""maxLearners":3"#);
        Some(([("x-etcd-cluster-id", cluster_id?.to_owned())], settings))
    };
    let answer = move || async move {
        let answer = tokio::task::spawn_blocking(answer).await.unwrap();
        answer.ok_or(StatusCode::SERVICE_UNAVAILABLE)
    };
    let router = Router::new().route(SETTINGS, routing::get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Founders that start together cannot query each other before they listen, so each compares
/// settings again once it does.
#[tokio::test(flavor = "multi_thread")]
async fn founder_with_settings_that_differ_from_another_is_refused() {
    let (_guard, dir) = common::data_dir();
    let own = common::free_address();
    let other = founder_beside(own).await;
    let mut command = common::portunus();
    command.args(common::member_flags(&dir)).args([
        "--name=m0".to_owned(),
        format!("--listen-peer-urls=http://{own}"),
        format!("--initial-advertise-peer-urls=http://{own}"),
        format!("--initial-cluster=m0=http://{own},m1=http://{other}"),
    ]);
    let process = common::Process::spawn(&mut command);
    let ended = tokio::task::spawn_blocking(|| process.ended()).await;
    let (status, log) = ended.unwrap();
    assert!(!status.success(), "{log}");
    assert!(log.contains("listening for peers"), "{log}");
    let expected = "--max-learners differs: 1 here, 3 at member m1";
    assert!(log.lines().last().unwrap().contains(expected), "{log}");
}

/// Leases can be renewed and queried through any member, outlive a change of leader by their
/// whole TTL, and expire everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn leases_are_served_by_all_members_and_survive_leader_changes() {
    let test = "leases_are_served_by_all_members_and_survive_leader_changes";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let ttl = 4;
    let grant = LeaseGrantRequest { id: 77, ttl };
    let granted = cluster.clients(0).lease.lease_grant(grant).await.unwrap();
    assert_eq!(granted.into_inner().ttl, ttl);
    let request = PutRequest {
        lease: 77,
        ..put("leased", "x")
    };
    cluster.clients(1).kv.put(request).await.unwrap();
    for member in 0..3 {
        let mut lease = cluster.clients(member).lease;
        let renewals = tokio_stream::iter([77, 78].map(|id| LeaseKeepAliveRequest { id }));
        let mut answers = lease.lease_keep_alive(renewals).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!((answer.id, answer.ttl), (77, ttl), "through m{member}");
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!((answer.id, answer.ttl), (78, 0), "nobody has this lease");
        let request = LeaseTimeToLiveRequest { id: 77, keys: true };
        let answer = lease
            .lease_time_to_live(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (answer.granted_ttl, &answer.keys[..]),
            (ttl, &["leased".into()][..])
        );
        assert!(answer.ttl <= ttl && answer.ttl >= 0, "{answer:?}");
    }

    // The new leader does not know when it was renewed, so its TTL starts again.
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let left = cluster.leader().await;
    let since = Instant::now();
    let exists = async |member: usize| {
        let read = cluster.clients(member).kv.range(get("leased")).await;
        read.is_ok_and(|read| read.into_inner().count == 1)
    };
    eventually("the end of the lease", async || {
        (!exists(left).await).then_some(())
    })
    .await;
    // The leader was queried after its election, so the lease may seem a little short.
    let lived = since.elapsed() + Duration::from_secs(2);
    assert!(lived >= Duration::from_secs(4), "it ended after {lived:?}");
    cluster.start_one(leader).await;
    cluster.agree().await;
    for member in 0..3 {
        let request = LeaseTimeToLiveRequest { id: 77, keys: true };
        let answer = cluster
            .clients(member)
            .lease
            .lease_time_to_live(request)
            .await;
        assert_eq!(answer.unwrap().into_inner().ttl, -1, "m{member}");
    }
}
