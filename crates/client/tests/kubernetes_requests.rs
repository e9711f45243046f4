//! The requests that reach a store from a program that uses it as kube-apiserver does, recorded by
//! a proxy in front of a real member.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use portunus_client::kubernetes::{
    CountOptions, DeleteOptions, Error, GetOptions, Interface, Kubernetes, ListOptions, PutOptions,
    RequestProgressOptions, WatchEvent, WatchOptions,
};
use portunus_client::{Client, Options, Range};
use portunus_proto::etcdserverpb::{CompactionRequest, LeaseGrantRequest};
use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use portunus_testkit::wait::{soon, until};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

/// The calls of kube-apiserver.
const CALLS: [&str; 7] = [
    "/etcdserverpb.KV/Compact",
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/RangeStream",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Watch/Watch",
];
const PREFIX: &[u8] = b"/registry/pods/";

/// The values of the header `hasleader` by call; `None` is a call without it.
type Recorded = Arc<Mutex<BTreeMap<String, BTreeSet<Option<String>>>>>;

/// Forwards calls to a member and records them.
async fn proxy(member: String) -> (String, Recorded) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let recorded = Recorded::default();
    let calls = Arc::clone(&recorded);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(forward(stream, member.clone(), Arc::clone(&calls)));
        }
    });
    (address, recorded)
}

async fn forward(stream: TcpStream, member: String, recorded: Recorded) {
    let target = TcpStream::connect(member).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(target))
            .await
            .unwrap();
    tokio::spawn(connection);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let leader = request.headers().get("hasleader");
        let leader = leader.map(|value| value.to_str().unwrap().to_owned());
        let call = request.uri().path().to_owned();
        recorded
            .lock()
            .unwrap()
            .entry(call)
            .or_default()
            .insert(leader);
        let mut sender = sender.clone();
        async move {
            let answer: hyper::Result<Response<Incoming>> = sender.send_request(request).await;
            answer
        }
    });
    // Ends with the connection of the client.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

struct Store {
    member: Member,
    _directory: TempDir,
}

impl Store {
    async fn start(program: Program, flags: &[&str]) -> Store {
        let directory = tempfile::tempdir().unwrap();
        let mut member = Member::new("m1", program, directory.path()).unwrap();
        member.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        member.launch(&[]);
        let store = Store {
            member,
            _directory: directory,
        };
        let client = connect(store.member.endpoint());
        until("serving member", async || {
            client.count(b"", CountOptions::default()).await
        })
        .await;
        store
    }

    /// Returns the host and port of the member.
    fn address(&self) -> String {
        let endpoint = self.member.endpoint();
        endpoint.trim_start_matches("http://").to_owned()
    }
}

/// Connects with the limits of kube-apiserver.
fn connect(endpoint: String) -> Kubernetes {
    let options = Options {
        endpoints: vec![endpoint],
        dial_timeout: Duration::from_secs(20),
        keepalive_time: Duration::from_secs(30),
        keepalive_timeout: Duration::from_secs(10),
        command_timeout: Some(Duration::from_secs(30)),
        ..Options::default()
    };
    Kubernetes::new(Client::connect(options).unwrap())
}

/// Uses every operation of the interface, each on the path that succeeds and the one that does not.
async fn use_interface(store: &Kubernetes) -> i64 {
    let key = [PREFIX, b"a"].concat();
    let begin = store.get(b"/registry/pods", GetOptions::default()).await;
    let begin = begin.unwrap().revision;
    let options = WatchOptions {
        revision: begin,
        prefix: true,
        ..WatchOptions::default()
    };
    let mut events = store.watch(PREFIX, options).await.unwrap();
    let put = async |expected, get_on_failure| {
        let options = PutOptions {
            get_on_failure,
            ..PutOptions::default()
        };
        let value = Bytes::from_static(b"value");
        let put = store.optimistic_put(&key, value, expected, options).await;
        put.unwrap()
    };
    let created = put(0, false).await;
    assert!(created.succeeded);
    let conflict = put(0, true).await;
    assert_eq!(conflict.kv.unwrap().mod_revision, created.revision);
    let updated = put(created.revision, true).await.revision;
    let list = store.list(PREFIX, ListOptions::default()).await.unwrap();
    assert_eq!((list.kvs.len(), list.count), (1, 1));
    let count = store.count(PREFIX, CountOptions::default()).await.unwrap();
    assert_eq!(count, 1);
    let delete = store.optimistic_delete(&key, updated, DeleteOptions::default());
    let deleted = delete.await.unwrap();
    assert!(deleted.succeeded);
    store
        .request_progress(RequestProgressOptions::default())
        .await
        .unwrap();
    let mut changes = 0;
    loop {
        match soon("event", events.next()).await.unwrap() {
            WatchEvent::Bookmark { revision } if revision >= deleted.revision => break,
            WatchEvent::Bookmark { .. } => {
                let options = RequestProgressOptions::default();
                store.request_progress(options).await.unwrap();
            }
            WatchEvent::Error(error) => panic!("{error}"),
            _ => changes += 1,
        }
    }
    assert_eq!(changes, 3);
    deleted.revision
}

/// Uses what kube-apiserver needs beside the interface.
async fn use_client(store: &Kubernetes, revision: i64) {
    // Calls beside the interface require a leader only if the caller says so.
    let client = store.client().requiring_leader();
    let key = [PREFIX, b"leased"].concat();
    let lease = LeaseGrantRequest { ttl: 3660, id: 0 };
    let lease = client.lease_grant(lease).await.unwrap().id;
    let options = PutOptions {
        lease_id: lease,
        ..PutOptions::default()
    };
    let put = store.optimistic_put(&key, Bytes::from_static(b"v"), 0, options);
    assert!(put.await.unwrap().succeeded);
    let streamed = client.range_stream(Range::prefix(PREFIX)).await;
    let streamed = streamed.unwrap().kvs;
    assert_eq!((streamed.len(), streamed[0].lease), (1, lease));
    let keys = Range::prefix(PREFIX).keys_only();
    let keys = client.range(keys).await.unwrap().kvs;
    assert_eq!(keys[0].key, key);
    assert!(keys[0].value.is_empty());
    let compaction = CompactionRequest {
        revision,
        physical: false,
    };
    client.compact(compaction).await.unwrap();
    let options = GetOptions {
        revision: revision - 1,
    };
    let compacted = store.get(&key, options).await.unwrap_err();
    assert!(
        matches!(compacted, Error::Compacted { .. }),
        "{compacted:?}"
    );
    let status = client.status().await.unwrap();
    assert!(status.db_size > 0 && !status.version.is_empty());
}

/// Proves: K1, K37, S4-16
#[tokio::test]
async fn store_is_used_by_seven_calls_that_require_a_leader() {
    let test = "kubernetes_requests::store_is_used_by_seven_calls_that_require_a_leader";
    let portunus = Some(Program::portunus());
    for program in [portunus, Program::etcd(test)].into_iter().flatten() {
        let member = Store::start(program, &[]).await;
        let (address, recorded) = proxy(member.address()).await;
        let store = connect(address);
        let revision = use_interface(&store).await;
        {
            let recorded = recorded.lock().unwrap();
            let calls: Vec<&str> = recorded.keys().map(String::as_str).collect();
            let expected = [
                "/etcdserverpb.KV/Range",
                "/etcdserverpb.KV/Txn",
                "/etcdserverpb.Watch/Watch",
            ];
            assert_eq!(calls, expected, "the calls of the interface");
        }
        use_client(&store, revision).await;
        let recorded = recorded.lock().unwrap();
        let calls: Vec<&str> = recorded.keys().map(String::as_str).collect();
        assert_eq!(calls, CALLS);
        for (call, leader) in recorded.iter() {
            let required = BTreeSet::from([Some("true".to_owned())]);
            assert_eq!(*leader, required, "hasleader of {call}");
        }
    }
}

/// kube-apiserver has a connection for each of its resources, and definitions add more.
///
/// Proves: K2
#[tokio::test]
async fn connection_for_each_of_many_resources_is_served() {
    const RESOURCES: usize = 150;
    let member = Store::start(Program::portunus(), &[]).await;
    let mut stores = Vec::new();
    for number in 0..RESOURCES {
        let store = connect(member.member.endpoint());
        // As at the start of kube-apiserver: nothing is sent before the connection is ready.
        soon("connection", store.client().ready()).await.unwrap();
        let prefix = format!("/registry/resource-{number}/");
        let options = WatchOptions {
            prefix: true,
            ..WatchOptions::default()
        };
        let events = store.watch(prefix.as_bytes(), options).await.unwrap();
        stores.push((prefix, store, events));
    }
    // All connections are open while each one writes and sees its own change.
    for (prefix, store, events) in &mut stores {
        let key = format!("{prefix}a");
        let value = Bytes::from_static(b"v");
        let put = store.optimistic_put(key.as_bytes(), value, 0, PutOptions::default());
        let written = put.await.unwrap();
        assert!(written.succeeded);
        let event = loop {
            match soon("event", events.next()).await.unwrap() {
                WatchEvent::Bookmark { .. } => {}
                event => break event,
            }
        };
        let WatchEvent::Added {
            key: seen,
            revision,
            ..
        } = event
        else {
            panic!("{event:?}");
        };
        assert_eq!((&seen[..], revision), (key.as_bytes(), written.revision));
    }
}

/// Proves: K26
#[tokio::test]
async fn full_store_refuses_writes_with_its_own_error() {
    let test = "kubernetes_requests::full_store_refuses_writes_with_its_own_error";
    const VALUE_BYTES: usize = 100_000;
    let portunus = Some(Program::portunus());
    for program in [portunus, Program::etcd(test)].into_iter().flatten() {
        let member = Store::start(program, &["--quota-backend-bytes=8388608"]).await;
        let store = connect(member.member.endpoint());
        let mut written = 0;
        let refused = loop {
            let key = format!("/registry/pods/{written}");
            let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
            let put = store.optimistic_put(key.as_bytes(), value, 0, PutOptions::default());
            match put.await {
                Ok(put) => assert!(put.succeeded),
                Err(error) => break error,
            }
            written += 1;
            assert!(written < 1000, "the quota is never reached");
        };
        assert!(matches!(refused, Error::NoSpace), "{refused:?}");
        assert!(written > 10, "refused after {written} values");
        // Reads go on. A write that exceeds the quota when it is applied is refused although it was
        // applied, as in etcd.
        let count = store.count(PREFIX, CountOptions::default()).await.unwrap();
        assert!(count == written || count == written + 1, "{count} keys");
    }
}
