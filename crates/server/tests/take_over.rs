//! A data directory in etcd's layout: the log, and a bbolt file instead of our backend.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;

use common::gates::{MECHANISM, NO_MECHANISM, wants};
use common::stored::bucket;
use common::{Clients, Server, data_dir, launch};
use portunus_bolt::{BulkOptions, FileWriter, Reader};
use portunus_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, HashKvRequest, InternalRaftRequest, LeaseGrantRequest,
    LeaseTimeToLiveRequest, PutRequest, RangeRequest, Request, SnapshotRequest,
};
use portunus_proto::membershippb::{ClusterParams, ClusterVersionSetRequest};
use portunus_proto::raftpb::{Entry, HardState};
use portunus_wal::{SnapshotPoint, Wal};
use prost::Message;

/// Bytes of the digest at the end of a snapshot.
const DIGEST_BYTES: usize = 32;

async fn hash_kv(server: &Server) -> (u32, i64, i64) {
    let mut clients = server.connect().await;
    let request = HashKvRequest { revision: 0 };
    let hash = clients.maintenance.hash_kv(request).await.unwrap();
    let hash = hash.into_inner();
    (
        hash.hash,
        hash.compact_revision,
        hash.header.unwrap().revision,
    )
}

fn put(key: &str, lease: i64) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: format!("value of {key}").into(),
        lease,
        ..PutRequest::default()
    }
}

/// Converts a member's directory to etcd's layout: its log as it is, its data as the bbolt file
/// `database`.
fn etcd_layout(ours: &Path, database: &[u8], to: &Path) {
    fs::create_dir_all(to.join("member/snap")).unwrap();
    fs::create_dir_all(to.join("member/wal")).unwrap();
    for file in fs::read_dir(ours.join("member/wal")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join("member/wal").join(file.file_name())).unwrap();
    }
    fs::write(to.join("member/snap/db"), database).unwrap();
}

/// Returns the database of a member's snapshot.
async fn saved(clients: &mut Clients) -> Vec<u8> {
    let mut blobs = clients
        .maintenance
        .snapshot(SnapshotRequest {})
        .await
        .unwrap()
        .into_inner();
    let mut snapshot = Vec::new();
    while let Some(blob) = blobs.message().await.unwrap() {
        snapshot.extend_from_slice(&blob.blob);
    }
    snapshot.truncate(snapshot.len() - DIGEST_BYTES);
    snapshot
}

/// Runs a member with some history and stops it; returns its snapshot in the middle of that
/// history, its hash at the end, and its lease.
async fn history(dir: &Path) -> (Vec<u8>, (u32, i64, i64), i64) {
    let server = Server::start(dir, &[]);
    let mut clients = server.connect().await;
    let lease = LeaseGrantRequest { ttl: 600, id: 0 };
    let lease = clients.lease.lease_grant(lease).await.unwrap().into_inner();
    for number in 0..50 {
        clients.kv.put(put(&format!("k{number}"), 0)).await.unwrap();
    }
    clients.kv.put(put("leased", lease.id)).await.unwrap();
    let delete = DeleteRangeRequest {
        key: "k7".into(),
        ..DeleteRangeRequest::default()
    };
    clients.kv.delete_range(delete).await.unwrap();
    let compaction = CompactionRequest {
        revision: 20,
        physical: true,
    };
    clients.kv.compact(compaction).await.unwrap();
    let snapshot = saved(&mut clients).await;
    // Only in the log.
    for number in 50..60 {
        clients.kv.put(put(&format!("k{number}"), 0)).await.unwrap();
    }
    let hash = hash_kv(&server).await;
    server.stop();
    (snapshot, hash, lease.id)
}

/// Decisions about cluster features in a database of etcd's layout are not taken over: it may
/// be restored from a snapshot of a cluster that had a feature on.
/// Proves: S0-A20, S0-A27
#[tokio::test(flavor = "multi_thread")]
async fn decisions_about_features_are_not_taken_over() {
    let (_guard, ours) = data_dir();
    let wanted = wants("LeaseCheckpoint=true");
    let server = Server::start(&ours, &[MECHANISM, &wanted]);
    common::eventually("the feature is on", async || {
        let on = server.get("/featuregate?feature=LeaseCheckpoint").body;
        (on == "true").then_some(())
    })
    .await;
    let snapshot = saved(&mut server.connect().await).await;
    server.stop();
    let (_guard, dir) = data_dir();
    etcd_layout(&ours, &snapshot, &dir);

    let server = Server::start(&dir, &[NO_MECHANISM]);
    let cluster = bucket(&mut server.connect().await, "cluster").await;
    assert!(cluster.contains_key("clusterVersion"));
    assert!(!cluster.contains_key("clusterParams"), "{cluster:?}");
    assert!(!cluster.contains_key("clusterParamsHistory"));
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_data_directory_is_taken_over() {
    let (_guard, ours) = data_dir();
    let (snapshot, hash, lease) = history(&ours).await;
    let (_guard, dir) = data_dir();
    etcd_layout(&ours, &snapshot, &dir);

    let server = Server::start(&dir, &[]);
    assert_eq!(hash_kv(&server).await, hash);
    let mut clients = server.connect().await;
    let ttl = LeaseTimeToLiveRequest {
        id: lease,
        keys: true,
    };
    let ttl = clients.lease.lease_time_to_live(ttl).await.unwrap();
    assert_eq!(ttl.into_inner().keys, ["leased"]);
    clients.kv.put(put("after", 0)).await.unwrap();
    let hash = hash_kv(&server).await;
    server.kill();
    // etcd's files are set aside, not gone, and not taken over twice.
    assert!(!dir.join("member/snap").exists());
    assert_eq!(
        fs::read(dir.join("member/snap.imported/db")).unwrap(),
        snapshot
    );
    let server = Server::start(&dir, &[]);
    assert_eq!(hash_kv(&server).await, hash);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_take_over_is_resumed() {
    let (_guard, ours) = data_dir();
    let (snapshot, hash, _) = history(&ours).await;
    let (_guard, dir) = data_dir();
    etcd_layout(&ours, &snapshot, &dir);
    // Interrupted while copying.
    fs::create_dir_all(dir.join("member/portunus.part")).unwrap();
    fs::write(dir.join("member/portunus.part/data.0.mdb"), b"half").unwrap();
    let server = Server::start(&dir, &[]);
    assert_eq!(hash_kv(&server).await, hash);
    server.stop();
    // Interrupted after copying, before etcd's files were set aside.
    fs::rename(dir.join("member/snap.imported"), dir.join("member/snap")).unwrap();
    let server = Server::start(&dir, &[]);
    assert_eq!(hash_kv(&server).await, hash);
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_used_by_etcd_after_a_take_over_is_refused() {
    let (_guard, ours) = data_dir();
    let (snapshot, _, _) = history(&ours).await;
    let (_guard, dir) = data_dir();
    Server::start(&dir, &[]).stop();
    etcd_layout(&ours, &snapshot, &dir);
    let (status, log) = launch(&dir, &[]).ended();
    assert!(!status.success());
    assert!(log.contains("was used by etcd after"), "{log}");
}

/// Data with authentication is taken over with it: no request without a user is served.
#[tokio::test(flavor = "multi_thread")]
async fn authentication_of_the_data_is_enforced_after_the_take_over() {
    let (_guard, ours) = data_dir();
    let (snapshot, _, _) = history(&ours).await;
    let reader = Reader::from_bytes(snapshot.into()).unwrap();
    let mut writer =
        FileWriter::new(BulkOptions::default(), std::io::Cursor::new(Vec::new())).unwrap();
    for bucket in reader.buckets() {
        let (name, bucket) = bucket.unwrap();
        writer.bucket(name).unwrap();
        for pair in bucket.iter() {
            let (key, value) = pair.unwrap();
            writer.entry(key, value).unwrap();
        }
        if name == b"auth" {
            writer.entry(b"authEnabled", &[1]).unwrap();
        }
    }
    let protected = writer.finish().unwrap().0.into_inner();
    let (_guard, dir) = data_dir();
    etcd_layout(&ours, &protected, &dir);
    let server = launch(&dir, &[]).ready();
    let mut clients = server.connect().await;
    let range = clients.kv.range(RangeRequest {
        key: "a".into(),
        ..RangeRequest::default()
    });
    let refused = range.await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: user name is empty");
    server.stop();
}

/// Appends entries of a 3.5 member to the log of a stopped member.
fn append_v2(dir: &Path, requests: &[(&str, &str)]) {
    let request = |(number, (path, value)): (u64, &(&str, &str))| Request {
        id: number,
        method: "PUT".to_owned(),
        path: (*path).to_owned(),
        val: (*value).to_owned(),
        ..Request::default()
    };
    let requests = (1..).zip(requests).map(request);
    let data: Vec<Vec<u8>> = requests.map(|request| request.encode_to_vec()).collect();
    append(dir, &data);
}

/// Appends committed entries to the log of a stopped member.
fn append(dir: &Path, data: &[Vec<u8>]) {
    let wal = dir.join("member").join("wal");
    let (mut wal, found) = Wal::open(&wal, SnapshotPoint::default()).unwrap();
    let last = found.entries.last().unwrap();
    let entries: Vec<Entry> = (last.index + 1..)
        .zip(data)
        .map(|(index, data)| Entry {
            index,
            term: last.term,
            data: data.clone().into(),
            ..Entry::default()
        })
        .collect();
    let hard_state = HardState {
        commit: last.index + data.len() as u64,
        ..found.hard_state
    };
    wal.append(Some(&hard_state), &entries).unwrap();
    wal.sync().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn log_with_requests_of_3_5_is_taken_over() {
    let (_guard, dir) = data_dir();
    let as_3_5 = ["--emulated-version=3.5"];
    let server = Server::start(&dir, &as_3_5);
    let mut clients = server.connect().await;
    clients.kv.put(put("a", 0)).await.unwrap();
    let header = clients.kv.put(put("b", 0)).await.unwrap().into_inner();
    let id = header.header.unwrap().member_id;
    let before = hash_kv(&server).await;
    server.stop();
    let path = format!("/0/members/{id:x}/attributes");
    let attributes = r#"{"name":"of 3.5","clientURLs":["http://a:2379"]}"#;
    append_v2(&dir, &[(&path, attributes), ("/0/version", "3.5.0")]);
    let again = Server::start(&dir, &as_3_5);
    let line = again.process.find_line("cluster version decided").unwrap();
    assert!(line.contains("3.5"), "{line}");
    assert_eq!(hash_kv(&again).await, before);
    again.stop();

    append_v2(&dir, &[("/1/key", "value")]);
    let (status, log) = launch(&dir, &as_3_5).ended();
    assert!(!status.success());
    assert!(log.contains("asks for a change of the v2 store"), "{log}");
}

/// Params that belong to another version: the entry has no effect, and no log line reports one.
#[tokio::test(flavor = "multi_thread")]
async fn refused_cluster_version_is_not_logged_as_decided() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    clients.kv.put(put("a", 0)).await.unwrap();
    server.process.find_line("cluster version decided").unwrap();
    server.stop();
    let request = InternalRaftRequest {
        cluster_version_set: Some(ClusterVersionSetRequest {
            ver: "3.8.0".to_owned(),
            cluster_params: Some(ClusterParams {
                version: "3.7".to_owned(),
                ..ClusterParams::default()
            }),
            ..ClusterVersionSetRequest::default()
        }),
        ..InternalRaftRequest::default()
    };
    append(&dir, &[request.encode_to_vec()]);
    let again = Server::start(&dir, &[]);
    let line = again.process.find_line("cluster version refused").unwrap();
    assert!(line.contains("3.8"), "{line}");
    let mut clients = again.connect().await;
    clients.kv.put(put("b", 0)).await.unwrap();
    let log = again.process.log();
    assert!(!log.contains("cluster version decided"), "{log}");
}
