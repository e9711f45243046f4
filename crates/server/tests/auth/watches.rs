//! Watches under authentication.

use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{
    AuthRoleRevokePermissionRequest, AuthUserDeleteRequest, WatchCreateRequest, WatchRequest,
    WatchResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::common::{Clients, Server, data_dir, soon};
use super::{Account, CHEAP_HASHES, enable, log_in, put, with};

const DENIED: &str = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";

struct Watching {
    _requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl Watching {
    async fn start(clients: &mut Clients, key: &str, end: &str, token: Option<&str>) -> Watching {
        let (sender, requests) = mpsc::channel(4);
        let create = WatchCreateRequest {
            key: key.to_owned().into(),
            range_end: end.to_owned().into(),
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        sender.send(request).await.unwrap();
        let stream = with(ReceiverStream::new(requests), token);
        let responses = clients.watch.watch(stream).await.unwrap().into_inner();
        Watching {
            _requests: sender,
            responses,
        }
    }

    async fn next(&mut self) -> WatchResponse {
        let next = soon("the next response", self.responses.message()).await;
        next.unwrap().expect("the stream goes on")
    }
}

const ACCOUNTS: [Account<'static>; 2] =
    [("u", Type::Read, b"a", b"c"), ("v", Type::Read, b"a", b"c")];

#[tokio::test(flavor = "multi_thread")]
async fn watch_is_refused_without_permission_for_the_whole_range() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES]);
    let mut clients = server.connect().await;
    enable(&mut clients, &ACCOUNTS).await;
    let token = log_in(&mut clients, "u").await;
    let unknown = "x".repeat(16) + ".1";
    let empty = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
    let invalid = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
    for (key, end, token, expected) in [
        ("a", "c", Some(&token), ""),
        ("b", "", Some(&token), ""),
        ("a", "c\0", Some(&token), DENIED),
        ("c", "", Some(&token), DENIED),
        ("", "\0", Some(&token), DENIED),
        ("a", "c", None, empty),
        ("a", "c", Some(&unknown), invalid),
    ] {
        let token = token.map(String::as_str);
        let mut watching = Watching::start(&mut clients, key, end, token).await;
        let created = watching.next().await;
        assert!(created.created);
        assert_eq!(created.cancel_reason, expected, "{key} {end}");
        assert_eq!(created.canceled, !expected.is_empty());
    }
}

/// A watch gets everything up to the loss of its permission, then the reason, and nothing after.
#[tokio::test(flavor = "multi_thread")]
async fn watch_of_a_user_without_permission_any_more_is_canceled_before_the_next_event() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES]);
    let mut clients = server.connect().await;
    let mut anonymous = Watching::start(&mut clients, "a", "c", None).await;
    assert!(anonymous.next().await.created);
    enable(&mut clients, &ACCOUNTS).await;
    assert_eq!(anonymous.next().await.cancel_reason, DENIED);

    let root = log_in(&mut clients, "root").await;
    let mut watches = Vec::new();
    for user in ["u", "v", "root"] {
        let token = log_in(&mut clients, user).await;
        let mut watching = Watching::start(&mut clients, "a", "c", Some(&token)).await;
        assert!(watching.next().await.created);
        watches.push(watching);
    }
    let before = put(&mut clients, "a", Some(&root)).await.unwrap();
    let revoke = AuthRoleRevokePermissionRequest {
        role: "u".to_owned(),
        key: "a".into(),
        range_end: "c".into(),
    };
    let revoked = clients
        .auth
        .role_revoke_permission(with(revoke, Some(&root)));
    revoked.await.unwrap();
    let between = put(&mut clients, "a", Some(&root)).await.unwrap();
    let delete = AuthUserDeleteRequest {
        name: "v".to_owned(),
    };
    let deleted = clients.auth.user_delete(with(delete, Some(&root)));
    deleted.await.unwrap();
    let after = put(&mut clients, "a", Some(&root)).await.unwrap();

    let expected = [
        vec![before],
        vec![before, between],
        vec![before, between, after],
    ];
    for (watching, expected) in watches.iter_mut().zip(expected) {
        let is_root = expected.len() == 3;
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            let response = watching.next().await;
            assert!(!response.canceled, "too early: {seen:?} of {expected:?}");
            let events = response.events.iter();
            seen.extend(events.map(|event| event.kv.as_ref().unwrap().mod_revision));
        }
        assert_eq!(seen, expected);
        if !is_root {
            let last = watching.next().await;
            assert!(last.canceled && last.events.is_empty());
            assert_eq!(last.cancel_reason, DENIED);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_goes_on_without_the_gate_as_in_etcd() {
    let (_guard, dir) = data_dir();
    let gate = "--feature-gates=WatchPermissionRecheck=false";
    let server = Server::start(&dir, &[CHEAP_HASHES, gate]);
    let mut clients = server.connect().await;
    enable(&mut clients, &ACCOUNTS).await;
    let root = log_in(&mut clients, "root").await;
    let token = log_in(&mut clients, "u").await;
    let mut watching = Watching::start(&mut clients, "a", "c", Some(&token)).await;
    assert!(watching.next().await.created);
    let delete = AuthUserDeleteRequest {
        name: "u".to_owned(),
    };
    let deleted = clients.auth.user_delete(with(delete, Some(&root)));
    deleted.await.unwrap();
    put(&mut clients, "a", Some(&root)).await.unwrap();
    assert_eq!(watching.next().await.events.len(), 1);
}
