//! Status, alarms, hashes, snapshots and members, as operators and their tools use them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::requests::{delete, delete_op, everything, get, put, put_op, txn};
use common::{Clients, Server, data_dir, refusal};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::alarm_request::AlarmAction;
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;
use portunus_proto::etcdserverpb::{
    AlarmMember, AlarmRequest, AlarmType, AuthStatusRequest, CompactionRequest, DefragmentRequest,
    DowngradeRequest, HashKvRequest, HashRequest, LeaseGrantRequest, MemberAddRequest,
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest,
    MoveLeaderRequest, PutRequest, RangeRequest, SnapshotRequest, StatusRequest, StatusResponse,
};
use tonic::Code;

async fn started(flags: &[&str]) -> (tempfile::TempDir, Server, Clients) {
    let (guard, dir) = data_dir();
    let server = Server::start(&dir, flags);
    let clients = server.connect().await;
    (guard, server, clients)
}

/// Reads the status after a linearizable read: a status is not linearizable, and a response may
/// reach the client before the applied index is updated.
async fn status(clients: &mut Clients) -> StatusResponse {
    clients.kv.range(get("a")).await.unwrap();
    clients
        .maintenance
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner()
}

async fn alarm(
    clients: &mut Clients,
    action: AlarmAction,
    member_id: u64,
    alarm: AlarmType,
) -> Vec<AlarmMember> {
    let request = AlarmRequest {
        action: action as i32,
        member_id,
        alarm: alarm as i32,
    };
    clients
        .maintenance
        .alarm(request)
        .await
        .unwrap()
        .into_inner()
        .alarms
}

fn error(error: EtcdError) -> (Code, String) {
    (error.code(), error.text().to_owned())
}

/// Proves: K24
#[tokio::test]
async fn status_reports_versions_sizes_and_indexes() {
    let (_guard, _server, mut clients) = started(&["--name=m1"]).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    let before = status(&mut clients).await;
    let header = before.header.unwrap();
    assert_eq!(header.revision, 2);
    assert_eq!(before.version, "3.8.0");
    assert_eq!(before.storage_version, "3.8.0");
    assert_eq!(before.leader, header.member_id);
    assert_eq!(before.raft_term, header.raft_term);
    assert!(before.raft_index >= before.raft_applied_index && before.raft_applied_index > 0);
    assert!(before.db_size > 0 && before.db_size_in_use <= before.db_size);
    assert_eq!(before.db_size_quota, 2 << 30);
    assert!(!before.is_learner && before.errors.is_empty());
    assert!(!before.downgrade_info.unwrap().enabled);
    clients.kv.put(put("a", "2")).await.unwrap();
    let after = status(&mut clients).await;
    assert_eq!(after.raft_applied_index, before.raft_applied_index + 1);
}

#[tokio::test]
async fn member_list_reports_the_only_member() {
    let (_guard, _server, mut clients) = started(&["--name=m1"]).await;
    let own = status(&mut clients).await.leader;
    for linearizable in [true, false] {
        let list = clients
            .cluster
            .member_list(MemberListRequest { linearizable })
            .await;
        let list = list.unwrap().into_inner();
        assert_eq!(list.members.len(), 1);
        let member = &list.members[0];
        assert_eq!(
            (member.id, &*member.name, member.is_learner),
            (own, "m1", false)
        );
        assert_eq!(member.peer_urls, ["http://localhost:2380"]);
        assert_eq!(member.client_urls, ["http://127.0.0.1:2379"]);
    }
    let cluster = &mut clients.cluster;
    let not_found = error(EtcdError::MemberNotFound);
    let remove = |id| MemberRemoveRequest { id };
    assert_eq!(refusal(cluster.member_remove(remove(1)).await), not_found);
    let (_, text) = refusal(cluster.member_remove(remove(own)).await);
    assert_eq!(text, EtcdError::MemberNotEnoughStarted.text());
    let promote = |id| MemberPromoteRequest { id };
    assert_eq!(refusal(cluster.member_promote(promote(1)).await), not_found);
    assert_eq!(
        refusal(cluster.member_promote(promote(own)).await),
        error(EtcdError::MemberNotLearner)
    );
    let update = |id| MemberUpdateRequest {
        id,
        peer_urls: vec!["http://b:2380".to_owned()],
    };
    assert_eq!(refusal(cluster.member_update(update(1)).await), not_found);
    let bad = MemberAddRequest {
        peer_urls: vec!["b:2380".to_owned()],
        is_learner: false,
    };
    assert_eq!(
        refusal(cluster.member_add(bad).await),
        error(EtcdError::MemberBadUrls)
    );
    let updated = cluster.member_update(update(own)).await.unwrap();
    assert_eq!(updated.into_inner().members[0].peer_urls, ["http://b:2380"]);
    // A learner does not vote, so the member still serves alone.
    let add = MemberAddRequest {
        peer_urls: vec!["http://c:2380".to_owned()],
        is_learner: true,
    };
    let added = cluster.member_add(add).await.unwrap().into_inner();
    assert_eq!(added.members.len(), 2);
    let learner = added.member.unwrap();
    assert!(learner.is_learner && learner.id != own);
    let same_place = MemberAddRequest {
        peer_urls: vec!["http://c:2380".to_owned(), "http://e:2380".to_owned()],
        is_learner: true,
    };
    assert_eq!(
        refusal(cluster.member_add(same_place).await),
        error(EtcdError::PeerUrlExists)
    );
    let second = MemberAddRequest {
        peer_urls: vec!["http://d:2380".to_owned()],
        is_learner: true,
    };
    assert_eq!(
        refusal(cluster.member_add(second).await),
        error(EtcdError::TooManyLearners)
    );
    assert_eq!(
        refusal(cluster.member_promote(promote(learner.id)).await),
        error(EtcdError::LearnerNotReady)
    );
    let removed = cluster.member_remove(remove(learner.id)).await.unwrap();
    assert_eq!(removed.into_inner().members.len(), 1);
    assert_eq!(
        refusal(cluster.member_remove(remove(learner.id)).await),
        not_found
    );
}

#[tokio::test]
async fn move_leader_and_downgrade_of_a_single_member_answer_as_etcd() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let own = status(&mut clients).await.leader;
    let maintenance = &mut clients.maintenance;
    let moved = maintenance
        .move_leader(MoveLeaderRequest { target_id: own })
        .await
        .unwrap();
    assert_eq!(moved.into_inner().header, None);
    assert_eq!(
        refusal(
            maintenance
                .move_leader(MoveLeaderRequest { target_id: 1 })
                .await
        ),
        error(EtcdError::BadLeaderTransferee)
    );
    use DowngradeAction::{Cancel, Enable, Validate};
    for (action, version, expected) in [
        (Validate, "3.7", None),
        (Validate, "3.7.0", None),
        (Validate, "", Some(EtcdError::WrongDowngradeVersionFormat)),
        (
            Validate,
            "new",
            Some(EtcdError::WrongDowngradeVersionFormat),
        ),
        (Enable, "new", Some(EtcdError::WrongDowngradeVersionFormat)),
        (
            Validate,
            "3.6",
            Some(EtcdError::InvalidDowngradeTargetVersion),
        ),
        (
            Validate,
            "3.8",
            Some(EtcdError::InvalidDowngradeTargetVersion),
        ),
        (
            Validate,
            "3.9",
            Some(EtcdError::InvalidDowngradeTargetVersion),
        ),
        (
            Enable,
            "3.6",
            Some(EtcdError::InvalidDowngradeTargetVersion),
        ),
        // There is none, which etcd accepts.
        (Cancel, "", None),
    ] {
        let request = DowngradeRequest {
            action: action as i32,
            version: version.to_owned(),
        };
        let answer = maintenance.downgrade(request).await;
        match expected {
            None => assert_eq!(answer.unwrap().into_inner().version, "3.8", "{version}"),
            Some(expected) => {
                assert_eq!(refusal(answer), error(expected), "{action:?} {version}");
            }
        }
    }
}

#[tokio::test]
async fn call_that_is_not_supported_is_refused_with_what_is_missing() {
    let (_guard, _server, clients) = started(&[]).await;
    let mut lock = portunus_proto::v3lockpb::lock_client::LockClient::new(clients.channel.clone());
    let locked = portunus_proto::v3lockpb::LockRequest {
        name: "a".into(),
        lease: 0,
    };
    let channel = clients.channel.clone();
    let mut election = portunus_proto::v3electionpb::election_client::ElectionClient::new(channel);
    let leader = portunus_proto::v3electionpb::LeaderRequest { name: "a".into() };
    for ((code, text), expected) in [
        (
            refusal(lock.lock(locked).await),
            "service v3lockpb.Lock is not supported by this version: use a lease",
        ),
        (
            refusal(election.leader(leader).await),
            "service v3electionpb.Election is not supported by this version: use a lease",
        ),
    ] {
        assert_eq!(code, Code::Unimplemented);
        assert!(text.starts_with(expected), "{text}");
    }
}

#[tokio::test]
async fn auth_status_reports_that_authentication_is_off() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let status = clients.auth.auth_status(AuthStatusRequest {}).await;
    let status = status.unwrap().into_inner();
    assert!(!status.enabled);
    // As a fresh etcd answers.
    assert_eq!(status.auth_revision, 1);
    assert_eq!(status.header.unwrap().revision, 1);
}

#[tokio::test]
async fn health_service_reports_serving() {
    use tonic_health::pb::health_check_response::ServingStatus;
    let (_guard, _server, clients) = started(&[]).await;
    let mut health = tonic_health::pb::health_client::HealthClient::new(clients.channel.clone());
    let check = |service: &str| tonic_health::pb::HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = health.check(check("")).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
    assert_eq!(
        refusal(health.check(check("nothing")).await).0,
        Code::NotFound
    );
}

#[tokio::test]
async fn alarms_survive_a_restart() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    use AlarmAction::{Activate, Deactivate, Get};
    use AlarmType::{Corrupt, None as Any, Nospace};
    assert!(alarm(&mut clients, Get, 0, Any).await.is_empty());
    assert!(alarm(&mut clients, Activate, 1, Any).await.is_empty());
    let raised = AlarmMember {
        member_id: 1,
        alarm: Nospace as i32,
    };
    assert_eq!(alarm(&mut clients, Activate, 1, Nospace).await, [raised]);
    assert_eq!(alarm(&mut clients, Activate, 1, Nospace).await, [raised]);
    // A member id is taken literally; 0 does not mean all members.
    assert!(alarm(&mut clients, Deactivate, 0, Nospace).await.is_empty());
    assert!(alarm(&mut clients, Get, 0, Corrupt).await.is_empty());
    assert_eq!(alarm(&mut clients, Get, 0, Any).await, [raised]);
    server.kill();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    assert_eq!(alarm(&mut clients, Get, 0, Any).await, [raised]);
    assert_eq!(status(&mut clients).await.errors.len(), 1);
    assert!(status(&mut clients).await.errors[0].contains("NOSPACE"));
    assert_eq!(
        refusal(clients.kv.put(put("a", "1")).await),
        error(EtcdError::NoSpace)
    );
    assert_eq!(alarm(&mut clients, Deactivate, 1, Nospace).await, [raised]);
    clients.kv.put(put("a", "1")).await.unwrap();
}

#[tokio::test]
async fn corrupt_alarm_allows_only_reads() {
    let (_guard, _server, mut clients) = started(&[]).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    alarm(&mut clients, AlarmAction::Activate, 1, AlarmType::Corrupt).await;
    let corrupt = error(EtcdError::Corrupt);
    assert_eq!(refusal(clients.kv.put(put("a", "2")).await), corrupt);
    assert_eq!(refusal(clients.kv.delete_range(delete("a")).await), corrupt);
    assert_eq!(
        refusal(clients.kv.txn(txn([put_op("a", "2")])).await),
        corrupt
    );
    let compaction = CompactionRequest {
        revision: 2,
        physical: false,
    };
    assert_eq!(refusal(clients.kv.compact(compaction).await), corrupt);
    let lease = LeaseGrantRequest { id: 1, ttl: 10 };
    assert_eq!(refusal(clients.lease.lease_grant(lease).await), corrupt);
    let a = clients.kv.range(get("a")).await.unwrap().into_inner();
    assert_eq!(
        (&a.kvs[0].value[..], a.header.unwrap().revision),
        (&b"1"[..], 2)
    );
    alarm(&mut clients, AlarmAction::Deactivate, 1, AlarmType::Corrupt).await;
    clients.kv.put(put("a", "2")).await.unwrap();
}

/// Raising the alarm, and removing its cause: delete, compact, defragment, disarm.
///
/// Proves: K26
#[tokio::test]
async fn nospace_alarm_refuses_writes_until_it_is_disarmed() {
    const QUOTA_BYTES: i64 = 8 << 20;
    let quota = format!("--quota-backend-bytes={QUOTA_BYTES}");
    let (_guard, server, mut clients) = started(&[
        &quota,
        "--backend-batch-interval=5ms",
        "--compaction-sleep-interval=1ms",
    ])
    .await;
    let large = "v".repeat(100_000);
    let mut written = 0;
    let refused = loop {
        match clients.kv.put(put(&format!("k{written:04}"), &large)).await {
            Ok(_) => written += 1,
            Err(status) => break (status.code(), status.message().to_owned()),
        }
        assert!(written < 1000, "the quota is never reached");
    };
    assert_eq!(refused, error(EtcdError::NoSpace));
    assert!(written > 10, "the quota was reached after {written} values");
    // The alarm is raised through the log.
    let raised = loop {
        let alarms = alarm(&mut clients, AlarmAction::Get, 0, AlarmType::None).await;
        if let Some(raised) = alarms.first() {
            break *raised;
        }
    };
    let own = status(&mut clients).await.leader;
    assert_eq!(
        raised,
        AlarmMember {
            member_id: own,
            alarm: AlarmType::Nospace as i32
        }
    );
    assert!(status(&mut clients).await.errors[0].contains("NOSPACE"));
    assert_eq!(server.get("/health").status, 503);

    let no_space = error(EtcdError::NoSpace);
    assert_eq!(refusal(clients.kv.put(put("small", "1")).await), no_space);
    assert_eq!(
        refusal(clients.kv.txn(txn([put_op("small", "1")])).await),
        no_space
    );
    let lease = LeaseGrantRequest { id: 1, ttl: 10 };
    assert_eq!(refusal(clients.lease.lease_grant(lease).await), no_space);
    // Reads and requests that free space work.
    assert_eq!(
        clients
            .kv
            .range(get("k0000"))
            .await
            .unwrap()
            .into_inner()
            .count,
        1
    );
    clients.kv.txn(txn([delete_op("k0001")])).await.unwrap();
    let all = portunus_proto::etcdserverpb::DeleteRangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        prev_kv: false,
    };
    let deleted = clients.kv.delete_range(all).await.unwrap().into_inner();
    let revision = deleted.header.unwrap().revision;
    clients
        .kv
        .compact(CompactionRequest {
            revision,
            physical: true,
        })
        .await
        .unwrap();
    clients
        .maintenance
        .defragment(DefragmentRequest {})
        .await
        .unwrap();
    let after = status(&mut clients).await;
    assert!(after.db_size < QUOTA_BYTES / 2, "{} bytes", after.db_size);
    // The alarm stays until it is disarmed.
    assert_eq!(refusal(clients.kv.put(put("small", "1")).await), no_space);
    alarm(
        &mut clients,
        AlarmAction::Deactivate,
        own,
        AlarmType::Nospace,
    )
    .await;
    clients.kv.put(put("small", "1")).await.unwrap();
    assert!(status(&mut clients).await.errors.is_empty());
    assert_eq!(server.get("/health").status, 200);
}

/// Defragmenting while clients write loses nothing and blocks no client.
#[tokio::test]
async fn defragment_runs_concurrently_with_writes() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &["--backend-batch-interval=5ms"]);
    let mut clients = server.connect().await;
    let mut writer = server.connect().await;
    let writes = tokio::spawn(async move {
        for number in 0..300 {
            writer
                .kv
                .put(put(&format!("k{number}"), &"v".repeat(2000)))
                .await
                .unwrap();
        }
    });
    while !writes.is_finished() {
        clients
            .maintenance
            .defragment(DefragmentRequest {})
            .await
            .unwrap();
    }
    writes.await.unwrap();
    clients
        .maintenance
        .defragment(DefragmentRequest {})
        .await
        .unwrap();
    let before = clients
        .kv
        .range(everything())
        .await
        .unwrap()
        .into_inner()
        .kvs;
    assert_eq!(before.len(), 300);
    server.kill();
    let server = Server::start(&dir, &[]);
    let after = server
        .connect()
        .await
        .kv
        .range(everything())
        .await
        .unwrap()
        .into_inner()
        .kvs;
    assert!(after == before);
}

#[tokio::test]
async fn hash_and_hash_kv_are_stable_over_a_restart() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    for number in 0..20 {
        clients
            .kv
            .put(put(&format!("k{}", number % 3), &number.to_string()))
            .await
            .unwrap();
    }
    let at = |revision| HashKvRequest { revision };
    let now = clients
        .maintenance
        .hash_kv(at(0))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((now.hash_revision, now.header.unwrap().revision), (21, 21));
    let fixed = clients
        .maintenance
        .hash_kv(at(10))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (fixed.hash_revision, fixed.header.unwrap().revision),
        (10, 21)
    );
    assert_ne!(fixed.hash, now.hash);
    // The hash of a past revision does not change with new writes.
    clients.kv.put(put("new", "1")).await.unwrap();
    assert_eq!(
        clients
            .maintenance
            .hash_kv(at(10))
            .await
            .unwrap()
            .into_inner()
            .hash,
        fixed.hash
    );
    assert_eq!(
        clients
            .maintenance
            .hash_kv(at(21))
            .await
            .unwrap()
            .into_inner()
            .hash,
        now.hash
    );
    assert_eq!(
        refusal(clients.maintenance.hash_kv(at(23)).await),
        error(EtcdError::FutureRevision)
    );
    let compaction = CompactionRequest {
        revision: 15,
        physical: true,
    };
    clients.kv.compact(compaction).await.unwrap();
    assert_eq!(
        refusal(clients.maintenance.hash_kv(at(14)).await),
        error(EtcdError::Compacted)
    );
    let compacted = clients
        .maintenance
        .hash_kv(at(0))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(compacted.compact_revision, 15);

    let whole = clients
        .maintenance
        .hash(HashRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(whole.header.unwrap().revision, 22);
    server.stop();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    let after = clients
        .maintenance
        .hash(HashRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(after.hash, whole.hash);
    let after = clients
        .maintenance
        .hash_kv(at(0))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((after.hash, after.compact_revision), (compacted.hash, 15));
}

/// A snapshot is a bbolt file that etcd's tools can restore, with a digest at its end.
#[tokio::test]
async fn snapshot_is_a_bbolt_file_with_a_digest() {
    let (_guard, _server, mut clients) = started(&[]).await;
    for number in 0..500 {
        clients
            .kv
            .put(put(&format!("k{}", number % 400), &"v".repeat(500)))
            .await
            .unwrap();
    }
    clients.kv.delete_range(delete("k7")).await.unwrap();
    let lease = LeaseGrantRequest { id: 5, ttl: 1000 };
    clients.lease.lease_grant(lease).await.unwrap();
    clients
        .kv
        .put(PutRequest {
            lease: 5,
            ..put("leased", "1")
        })
        .await
        .unwrap();
    let hash = clients
        .maintenance
        .hash_kv(HashKvRequest { revision: 0 })
        .await
        .unwrap();
    let hash_revision = hash.into_inner().hash_revision;

    let mut stream = clients
        .maintenance
        .snapshot(SnapshotRequest {})
        .await
        .unwrap()
        .into_inner();
    let mut file = Vec::new();
    let mut remaining = None;
    while let Some(piece) = stream.message().await.unwrap() {
        assert_eq!(piece.version, "3.8.0");
        assert!(piece.blob.len() <= 32 * 1024);
        if let Some(before) = remaining {
            assert_eq!(piece.remaining_bytes, before - piece.blob.len() as u64);
        }
        remaining = Some(piece.remaining_bytes);
        file.extend_from_slice(&piece.blob);
    }
    assert_eq!(remaining, Some(0));
    portunus_bolt::snapshot::verify(&file[..], file.len() as u64).unwrap();
    let reader = portunus_bolt::Reader::from_bytes(file.clone().into()).unwrap();
    let report = portunus_bolt::check(&reader);
    assert!(report.is_clean(), "{report:?}");
    let summary = portunus_bolt::snapshot::status(&reader).unwrap();
    assert_eq!((summary.revision, summary.total_keys), (hash_revision, 400));
    for bucket in [
        "key", "meta", "lease", "members", "cluster", "alarm", "auth",
    ] {
        assert!(
            reader.bucket(bucket.as_bytes()).unwrap().is_some(),
            "{bucket}"
        );
    }
    assert_eq!(reader.bucket(b"lease").unwrap().unwrap().iter().count(), 1);
    assert_eq!(
        reader.bucket(b"members").unwrap().unwrap().iter().count(),
        1
    );
    // A changed byte is detected.
    let middle = file.len() / 2;
    file[middle] ^= 1;
    assert!(portunus_bolt::snapshot::verify(&file[..], file.len() as u64).is_err());
}

/// Responses do not depend on how many values are kept in memory.
#[tokio::test]
async fn evicted_values_are_read_from_disk() {
    let (_guard, _server, mut clients) = started(&[
        "--resident-value-bytes=10000",
        "--backend-batch-interval=5ms",
    ])
    .await;
    for number in 0..200 {
        let value = format!("{number}-{}", "v".repeat(1000));
        clients
            .kv
            .put(put(&format!("k{:03}", number % 100), &value))
            .await
            .unwrap();
    }
    let all = clients.kv.range(everything()).await.unwrap().into_inner();
    assert_eq!(all.count, 100);
    for (position, kv) in all.kvs.iter().enumerate() {
        let expected = format!("{}-", position + 100);
        assert!(kv.value.starts_with(expected.as_bytes()), "{:?}", kv.key);
    }
    let old = RangeRequest {
        revision: 101,
        ..get("k042")
    };
    let old = clients.kv.range(old).await.unwrap().into_inner();
    assert!(old.kvs[0].value.starts_with(b"42-"));
}
