//! A member restored from a snapshot that was saved with authentication on.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use portunus_proto::etcdserverpb::{AuthStatusRequest, SnapshotRequest};
use portunus_testkit::client::Clients;
use portunus_testkit::standalone::{Server, data_dir};
use portunus_testkit::users::{self, signed};
use support::{portctl, run};

const FLAGS: &[&str] = &["--bcrypt-cost=4"];

async fn auth_revision(clients: &mut Clients) -> u64 {
    let status = clients.auth.auth_status(AuthStatusRequest {}).await;
    let status = status.unwrap().into_inner();
    assert!(status.enabled);
    status.auth_revision
}

/// Users, roles and their revision are those of the snapshot, and are enforced at once.
#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_snapshot_are_enforced_after_restore() {
    let (guard, dir) = data_dir();
    let server = Server::start(&dir, FLAGS);
    let mut clients = server.connect().await;
    users::enable(&mut clients).await;
    let root = users::assert_enforced(&mut clients).await;
    let revision = auth_revision(&mut clients).await;
    let pieces = signed(&root, SnapshotRequest {});
    let pieces = clients.maintenance.snapshot(pieces).await.unwrap();
    let mut pieces = pieces.into_inner();
    let mut saved = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        saved.extend_from_slice(&piece.blob);
    }
    server.stop();
    let snapshot = guard.path().join("saved.db");
    std::fs::write(&snapshot, saved).unwrap();

    let restored = guard.path().join("restored.etcd");
    let mut restore = portctl();
    restore.args(["snapshot", "restore"]).arg(&snapshot);
    run(restore.arg("--data-dir").arg(&restored), b"").ok();
    let server = Server::start(&restored, FLAGS);
    let mut clients = server.connect().await;
    users::assert_enforced(&mut clients).await;
    assert_eq!(auth_revision(&mut clients).await, revision);
    server.stop();
}
