//! Every call of the table, made to a server that is never available.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use portunus_proto::etcdserverpb::*;
use portunus_proto::portunuspb::HistoryRequest;
use tokio::net::TcpListener;

use super::*;
use crate::request::{Delete, Put, Range, Txn};
use crate::{Client, ClientError, Options};

/// Enough for a second attempt, after the pause before it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

type Attempts = Arc<Mutex<BTreeMap<String, u32>>>;

/// Serves gRPC with this status for every call, and counts the calls by method.
async fn server(status: &'static str) -> (String, Attempts) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let attempts = Attempts::default();
    let counted = Arc::clone(&attempts);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            let answer = move |request: Request<Incoming>| {
                let method = request.uri().path().trim_start_matches('/');
                // Without the package.
                let method = method.split_once('.').map_or(method, |(_, rest)| rest);
                *counted
                    .lock()
                    .unwrap()
                    .entry(method.to_owned())
                    .or_default() += 1;
                let response = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", status)
                    .body(Empty::<bytes::Bytes>::new());
                std::future::ready(Ok::<_, Infallible>(response.unwrap()))
            };
            let service = hyper::service::service_fn(answer);
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (address, attempts)
}

fn connect(address: &str) -> Client {
    Client::connect(Options {
        endpoints: vec![address.to_owned()],
        command_timeout: Some(COMMAND_TIMEOUT),
        ..Options::default()
    })
    .unwrap()
}

type Outcome = Pin<Box<dyn Future<Output = Option<ClientError>> + Send>>;

/// Makes a call with a client of its own.
macro_rules! made {
    ($made:ident, $client:ident: $($constant:ident => $call:expr;)*) => {
        $({
            let $client = $client.clone();
            let outcome: Outcome = Box::pin(async move { $call.await.err() });
            $made.push(($constant, outcome));
        })*
    };
}

/// Returns a future of every call of the table.
fn every_call(client: &Client) -> Vec<(Call, Outcome)> {
    let mut made = Vec::new();
    made!(made, client:
        RANGE => client.range(Range::key("k"));
        RANGE_STREAM => client.range_stream(Range::key("k"));
        PUT => client.put(Put::new("k", "v"));
        DELETE_RANGE => client.delete_range(Delete::key("k"));
        TXN => client.txn(Txn::new().then(Put::new("k", "v")));
        COMPACT => client.compact(CompactionRequest::default());
        LEASE_GRANT => client.lease_grant(LeaseGrantRequest::default());
        LEASE_REVOKE => client.lease_revoke(LeaseRevokeRequest::default());
        LEASE_KEEP_ALIVE => client.keep_alive_once(1);
        LEASE_TIME_TO_LIVE => client.lease_time_to_live(LeaseTimeToLiveRequest::default());
        LEASE_LEASES => client.lease_leases();
        MEMBER_LIST => client.member_list(MemberListRequest::default());
        MEMBER_ADD => client.member_add(MemberAddRequest::default());
        MEMBER_REMOVE => client.member_remove(MemberRemoveRequest::default());
        MEMBER_UPDATE => client.member_update(MemberUpdateRequest::default());
        MEMBER_PROMOTE => client.member_promote(MemberPromoteRequest::default());
        STATUS => client.status();
        HASH => client.hash();
        HASH_KV => client.hash_kv(HashKvRequest::default());
        ALARM => client.alarm(AlarmRequest::default());
        SNAPSHOT => client.snapshot();
        MOVE_LEADER => client.move_leader(MoveLeaderRequest::default());
        DEFRAGMENT => client.defragment();
        DOWNGRADE => client.downgrade(DowngradeRequest::default());
        FEATURE_GATE_STATUS => client.feature_gate_status(FeatureGateStatusRequest::default());
        GATE_HISTORY => client.gate_history(HistoryRequest::default());
        AUTH_ENABLE => client.auth_enable();
        AUTH_DISABLE => client.auth_disable();
        AUTH_STATUS => client.auth_status();
        AUTHENTICATE => client.authenticate(AuthenticateRequest::default());
        USER_ADD => client.user_add(AuthUserAddRequest::default());
        USER_GET => client.user_get(AuthUserGetRequest::default());
        USER_LIST => client.user_list();
        USER_DELETE => client.user_delete(AuthUserDeleteRequest::default());
        USER_CHANGE_PASSWORD => client.user_change_password(AuthUserChangePasswordRequest::default());
        USER_GRANT_ROLE => client.user_grant_role(AuthUserGrantRoleRequest::default());
        USER_REVOKE_ROLE => client.user_revoke_role(AuthUserRevokeRoleRequest::default());
        ROLE_ADD => client.role_add(AuthRoleAddRequest::default());
        ROLE_GET => client.role_get(AuthRoleGetRequest::default());
        ROLE_LIST => client.role_list();
        ROLE_DELETE => client.role_delete(AuthRoleDeleteRequest::default());
        ROLE_GRANT_PERMISSION => client.role_grant_permission(AuthRoleGrantPermissionRequest::default());
        ROLE_REVOKE_PERMISSION => client.role_revoke_permission(AuthRoleRevokePermissionRequest::default());
    );
    made
}

/// Runs all calls at the same time.
async fn outcomes(calls: Vec<(Call, Outcome)>) -> Vec<(Call, Option<ClientError>)> {
    let calls = calls.into_iter();
    let tasks: Vec<_> = calls
        .map(|(call, outcome)| (call, tokio::spawn(outcome)))
        .collect();
    let mut outcomes = Vec::new();
    for (call, task) in tasks {
        outcomes.push((call, task.await.unwrap()));
    }
    outcomes
}

/// Proves: K38
#[tokio::test]
async fn calls_are_repeated_after_unavailable_as_the_table_says() {
    const UNAVAILABLE: &str = "14";
    let (address, attempts) = server(UNAVAILABLE).await;
    let calls = every_call(&connect(&address));
    let made: Vec<Call> = calls.iter().map(|(call, _)| *call).collect();
    assert_eq!(made, ALL, "the table and the test have different calls");
    for (call, error) in outcomes(calls).await {
        let error = error.expect(call.name);
        let count = attempts.lock().unwrap().get(call.name).copied();
        match call.retry {
            Repeatable => {
                assert!(count >= Some(2), "{} {count:?}", call.name);
                let ClientError::DeadlineExceeded { last_attempt } = error else {
                    panic!("{}: {error:?}", call.name);
                };
                assert!(last_attempt.is_some(), "{}", call.name);
            }
            NonRepeatable => {
                assert_eq!(count, Some(1), "{}", call.name);
                assert!(error.is_unavailable(), "{}: {error:?}", call.name);
            }
        }
    }
}

/// Proves: K38
#[tokio::test]
async fn writes_of_the_kubernetes_interface_are_sent_once() {
    use crate::kubernetes::{DeleteOptions, GetOptions, Interface, Kubernetes, PutOptions};
    let (address, attempts) = server("14").await;
    let store = Kubernetes::new(connect(&address));
    let attempts = |call: &str| attempts.lock().unwrap().get(call).copied();
    let put = store.optimistic_put(b"k", "v".into(), 0, PutOptions::default());
    let error = put.await.unwrap_err();
    assert!(error.outcome_is_unknown(), "{error:?}");
    assert_eq!(attempts("KV/Txn"), Some(1));
    // A delete that could return the current pair is a write as well.
    let options = DeleteOptions {
        get_on_failure: true,
    };
    let error = store.optimistic_delete(b"k", 7, options).await.unwrap_err();
    assert!(error.outcome_is_unknown(), "{error:?}");
    assert_eq!(attempts("KV/Txn"), Some(2));
    assert!(store.get(b"k", GetOptions::default()).await.is_err());
    assert!(attempts("KV/Range") >= Some(2));
}

#[tokio::test]
async fn transaction_that_only_reads_is_repeated() {
    let (address, attempts) = server("14").await;
    let read = Txn::new().then(Range::key("k")).otherwise(Range::key("l"));
    assert!(connect(&address).txn(read).await.is_err());
    assert!(attempts.lock().unwrap().get("KV/Txn").copied() >= Some(2));
}

#[tokio::test]
async fn call_that_the_server_lacks_is_an_error_that_names_it() {
    const UNIMPLEMENTED: &str = "12";
    let (address, attempts) = server(UNIMPLEMENTED).await;
    for (call, error) in outcomes(every_call(&connect(&address))).await {
        let error = error.expect(call.name);
        assert!(error.is_unimplemented());
        let ClientError::Unsupported { call: named, .. } = &error else {
            panic!("{}: {error:?}", call.name);
        };
        assert_eq!(*named, call.name);
        assert!(error.to_string().contains(call.name), "{error}");
        assert_eq!(attempts.lock().unwrap().get(call.name), Some(&1));
    }
}

/// Proves: K38
#[tokio::test]
async fn write_is_sent_once_although_another_endpoint_is_away() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = closed.local_addr().unwrap().to_string();
    drop(closed);
    let (there, attempts) = server("9").await;
    let client = Client::connect(Options {
        endpoints: vec![away, there],
        ..Options::default()
    })
    .unwrap();
    for _ in 0..4 {
        let error = client.put(Put::new("k", "v")).await.unwrap_err();
        assert!(!error.is_unavailable(), "{error:?}");
    }
    assert_eq!(attempts.lock().unwrap().get("KV/Put"), Some(&4));
}

/// The connection is gone when the write is made, so that repeating it is safe.
#[tokio::test]
async fn write_on_a_closed_connection_counts_as_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = connect(&address);
    let accept = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // An empty SETTINGS frame, which makes the connection ready.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        tokio::io::AsyncWriteExt::write_all(&mut stream, &settings)
            .await
            .unwrap();
        stream
    };
    let (stream, (channel, _)) = tokio::join!(accept, client.pick_connection());
    drop(stream);
    drop(listener);
    let mut kv = kv_client::KvClient::new(channel);
    let not_sent = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let status = kv.put(PutRequest::default()).await.unwrap_err();
            if crate::preface::was_never_sent(&status) {
                return ClientError::from(status);
            }
        }
    });
    assert!(not_sent.await.unwrap().is_unavailable());
}
