//! Running snapshots and watches of gates end when their user loses its permission.

use std::time::Duration;

use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthUserDeleteRequest, AuthUserRevokeRoleRequest, PutRequest, SnapshotRequest, SnapshotResponse,
};
use portunus_proto::portunuspb::feature_gates_client::FeatureGatesClient;
use portunus_proto::portunuspb::{WatchRequest, WatchResponse};
use tonic::{Code, Status, Streaming};

use super::common::{Clients, Server, data_dir, soon};
use super::{Account, CHEAP_HASHES, add_user, enable, grant, log_in, with};

const GATE_OFF: &str = "--feature-gates=WatchPermissionRecheck=false";
const VALUE_BYTES: usize = 1 << 20;
/// So many that a snapshot does not fit into the buffers of its connection.
const VALUES: usize = 24;
const ACCOUNTS: [Account<'static>; 2] =
    [("u", Type::Read, b"a", b"c"), ("v", Type::Read, b"a", b"c")];

async fn fill(clients: &mut Clients) {
    for number in 0..VALUES {
        let put = PutRequest {
            key: format!("large/{number}").into(),
            value: vec![b'v'; VALUE_BYTES].into(),
            ..PutRequest::default()
        };
        clients.kv.put(put).await.unwrap();
    }
}

/// Starts a snapshot on a connection of its own, and reads its first blob.
async fn snapshot(server: &Server, token: Option<&str>) -> Streaming<SnapshotResponse> {
    let mut clients = server.connect().await;
    let request = with(SnapshotRequest {}, token);
    let stream = clients.maintenance.snapshot(request).await;
    let mut stream = stream.unwrap().into_inner();
    let first = soon("the first blob", stream.message()).await;
    assert!(first.unwrap().unwrap().remaining_bytes > 0);
    stream
}

/// Reads a snapshot to its end; returns the bytes that are missing.
async fn rest(mut stream: Streaming<SnapshotResponse>) -> Result<(), (u64, Status)> {
    let mut remaining_bytes = u64::MAX;
    loop {
        match soon("the next blob", stream.message()).await {
            Ok(Some(blob)) => remaining_bytes = blob.remaining_bytes,
            Ok(None) => {
                assert_eq!(remaining_bytes, 0);
                return Ok(());
            }
            Err(status) => return Err((remaining_bytes, status)),
        }
    }
}

fn assert_denied(status: &Status) {
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert_eq!(status.message(), "etcdserver: permission denied");
}

async fn revoke_root(clients: &mut Clients, user: &str, token: &str) {
    let revoke = AuthUserRevokeRoleRequest {
        name: user.to_owned(),
        role: "root".to_owned(),
    };
    let revoked = clients.auth.user_revoke_role(with(revoke, Some(token)));
    revoked.await.unwrap();
}

async fn delete(clients: &mut Clients, user: &str, token: &str) {
    let delete = AuthUserDeleteRequest {
        name: user.to_owned(),
    };
    let deleted = clients.auth.user_delete(with(delete, Some(token)));
    deleted.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn running_snapshot_ends_when_its_user_is_not_permitted_any_more() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES, "--max-concurrent-snapshots=4"]);
    let mut clients = server.connect().await;
    fill(&mut clients).await;
    let anonymous = snapshot(&server, None).await;
    enable(&mut clients, &ACCOUNTS).await;
    let (missing, status) = rest(anonymous).await.unwrap_err();
    assert_denied(&status);
    assert!(missing > 0);

    let root = log_in(&mut clients, "root").await;
    for user in ["u", "v"] {
        grant(&mut clients, user, "root", Some(&root)).await;
    }
    let (u, v) = (
        log_in(&mut clients, "u").await,
        log_in(&mut clients, "v").await,
    );
    let of_u = snapshot(&server, Some(&u)).await;
    let of_v = snapshot(&server, Some(&v)).await;
    let of_root = snapshot(&server, Some(&root)).await;
    revoke_root(&mut clients, "u", &root).await;
    delete(&mut clients, "v", &root).await;
    for stream in [of_u, of_v] {
        let (missing, status) = rest(stream).await.unwrap_err();
        assert_denied(&status);
        assert!(missing > 0);
    }
    // Other users are not affected, and the slots of ended snapshots are free.
    rest(of_root).await.unwrap();
    for _ in 0..4 {
        rest(snapshot(&server, Some(&root)).await).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_snapshot_goes_on_without_the_gate_as_in_etcd() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES, GATE_OFF]);
    let mut clients = server.connect().await;
    fill(&mut clients).await;
    enable(&mut clients, &ACCOUNTS).await;
    let root = log_in(&mut clients, "root").await;
    grant(&mut clients, "u", "root", Some(&root)).await;
    let token = log_in(&mut clients, "u").await;
    let running = snapshot(&server, Some(&token)).await;
    revoke_root(&mut clients, "u", &root).await;
    rest(running).await.unwrap();
}

/// Starts a watch of gates, and reads its first response.
async fn watch_gates(clients: &Clients, token: Option<&str>) -> Streaming<WatchResponse> {
    let mut gates = FeatureGatesClient::new(clients.channel.clone());
    let stream = gates.watch(with(WatchRequest::default(), token)).await;
    let mut stream = stream.unwrap().into_inner();
    let first = soon("the first response", stream.message()).await;
    assert!(first.unwrap().is_some());
    stream
}

async fn ends_denied(stream: &mut Streaming<WatchResponse>) {
    let ended = soon("the end of the stream", stream.message()).await;
    assert_denied(&ended.unwrap_err());
}

async fn is_open(stream: &mut Streaming<WatchResponse>) {
    let waited = tokio::time::timeout(Duration::from_millis(300), stream.message()).await;
    assert!(waited.is_err(), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn running_watch_of_gates_ends_when_its_user_is_deleted() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES]);
    let mut clients = server.connect().await;
    let mut anonymous = watch_gates(&clients, None).await;
    enable(&mut clients, &ACCOUNTS).await;
    ends_denied(&mut anonymous).await;

    let root = log_in(&mut clients, "root").await;
    let u = log_in(&mut clients, "u").await;
    let v = log_in(&mut clients, "v").await;
    let mut of_u = watch_gates(&clients, Some(&u)).await;
    let mut of_v = watch_gates(&clients, Some(&v)).await;
    add_user(&mut clients, "w", Some(&root)).await;
    is_open(&mut of_u).await;
    delete(&mut clients, "u", &root).await;
    ends_denied(&mut of_u).await;
    is_open(&mut of_v).await;
    delete(&mut clients, "v", &root).await;
    ends_denied(&mut of_v).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_watch_of_gates_goes_on_without_the_gate() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES, GATE_OFF]);
    let mut clients = server.connect().await;
    enable(&mut clients, &ACCOUNTS).await;
    let root = log_in(&mut clients, "root").await;
    let token = log_in(&mut clients, "u").await;
    let mut stream = watch_gates(&clients, Some(&token)).await;
    delete(&mut clients, "u", &root).await;
    is_open(&mut stream).await;
}
