//! With any input at the client port, the member keeps serving others, and its memory stays
//! bounded.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod raw;

use std::net::TcpStream;
use std::path::PathBuf;

use bytes::Bytes;
use common::random::Random;
use common::requests::{compare, everything, get, put, put_op, txn};
use common::watching::{WatchStream, watch_all};
use common::{Clients, Server, data_dir, launch, refusal, soon};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::compare::{CompareResult, TargetUnion};
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{
    AlarmRequest, CompactionRequest, Compare, HashKvRequest, HashRequest, LeaseGrantRequest,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, SnapshotRequest,
    TxnRequest, WatchCreateRequest,
};
use prost::Message;
use raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,
    call, call_headers, frame, frame_of_length, greeting, listen_a_moment, message_of_length, say,
    say_and_leave,
};
use tonic::Code;

const MIB: u64 = 1 << 20;
/// A member without much data needs a tenth of this; memory that grows with bad input exceeds
/// it.
const RESIDENT_BYTES_MAX: u64 = 512 * MIB;

const PUT: &str = "/etcdserverpb.KV/Put";

/// A member, and a correct client that must not be affected.
struct Subject {
    server: Server,
    good: Clients,
    requests: u64,
    dir: PathBuf,
    _guard: tempfile::TempDir,
}

impl Subject {
    async fn start(flags: &[&str]) -> Subject {
        let (guard, dir) = data_dir();
        let server = launch(&dir, flags).ready();
        let good = server.connect().await;
        Subject {
            server,
            good,
            requests: 0,
            dir,
            _guard: guard,
        }
    }

    /// Restarts the member after a crash, on the same data.
    async fn restart(self) -> Subject {
        self.server.kill();
        let server = launch(&self.dir, &[]).ready();
        let good = server.connect().await;
        Subject {
            server,
            good,
            ..self
        }
    }

    /// Checks that puts and gets work, over an old connection and a new one.
    async fn still_serves(&mut self) {
        for clients in [self.good.clone(), self.server.connect().await] {
            self.requests += 1;
            let value = self.requests.to_string();
            let mut kv = clients.kv.clone();
            soon("a put", kv.put(put("good", &value))).await.unwrap();
            let read = soon("a get", kv.range(get("good"))).await.unwrap();
            assert_eq!(read.into_inner().kvs[0].value, value);
        }
    }

    fn memory_is_below(&self, bytes_max: u64) {
        let bytes = self.server.process.resident_bytes();
        eprintln!("resident: {} MiB", bytes / MIB);
        assert!(
            bytes < bytes_max,
            "{} MiB of {} MiB",
            bytes / MIB,
            bytes_max / MIB
        );
    }
}

fn random_bytes(random: &mut Random, length_max: u64) -> Vec<u8> {
    let length = random.below(length_max);
    (0..length).map(|_| random.below(256) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_survives_random_bytes() {
    let mut subject = Subject::start(&[]).await;
    let mut random = Random::seeded("random bytes");
    for _ in 0..200 {
        let bytes = random_bytes(&mut random, 20_000);
        say_and_leave(subject.server.address, &bytes);
    }
    // Input with a valid beginning.
    let endless_header = format!("GET /health HTTP/1.1\r\nX: {}", "x".repeat(2_000_000));
    for beginning in [
        "GET /health HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "GET /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "GET \0 HTTP/9.9\r\n\r\n",
        endless_header.as_str(),
    ] {
        say_and_leave(subject.server.address, beginning.as_bytes());
    }
    subject.still_serves().await;
    subject.memory_is_below(RESIDENT_BYTES_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_survives_random_frames_after_a_valid_preface() {
    let mut subject = Subject::start(&[]).await;
    let mut random = Random::seeded("random frames");
    for _ in 0..200 {
        let mut bytes = greeting();
        for _ in 0..random.below(20) {
            let payload = random_bytes(&mut random, 300);
            let length = match random.below(4) {
                0 => random.below(1 << 24) as u32,
                _ => payload.len() as u32,
            };
            let (kind, flags) = (random.below(12) as u8, random.below(256) as u8);
            let stream = random.below(8) as u32;
            bytes.extend(frame_of_length(length, kind, flags, stream, &payload));
        }
        say_and_leave(subject.server.address, &bytes);
    }
    subject.still_serves().await;
    subject.memory_is_below(RESIDENT_BYTES_MAX);
}

/// Frames that are cheap to send and expensive to receive.
#[tokio::test(flavor = "multi_thread")]
async fn server_survives_floods_of_frames() {
    let mut subject = Subject::start(&[]).await;
    let headers = call_headers(PUT);
    let resets = |stream: u32| {
        let open = frame(HEADERS, END_HEADERS, stream, &headers);
        [open, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    };
    let floods: [Vec<u8>; 4] = [
        (0..50_000)
            .flat_map(|_| frame(PING, 0, 0, &[0; 8]))
            .collect(),
        (0..50_000)
            .flat_map(|_| frame(SETTINGS, 0, 0, &[]))
            .collect(),
        (0..20_000)
            .flat_map(|number| resets(2 * number + 1))
            .collect(),
        [
            frame(HEADERS, 0, 1, &headers),
            (0..20_000)
                .flat_map(|_| frame(CONTINUATION, 0, 1, &[0, 1, b'a', 1, b'b']))
                .collect(),
        ]
        .concat(),
    ];
    for flood in &floods {
        let mut stream = say(
            subject.server.address,
            &[greeting(), flood.clone()].concat(),
        );
        listen_a_moment(&mut stream);
        subject.still_serves().await;
        subject.memory_is_below(RESIDENT_BYTES_MAX);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_are_refused() {
    let mut subject = Subject::start(&[]).await;
    let channel = subject.good.channel.clone();
    let methods = [
        PUT,
        "/etcdserverpb.KV/Range",
        "/etcdserverpb.KV/DeleteRange",
        "/etcdserverpb.KV/Txn",
        "/etcdserverpb.KV/Compact",
        "/etcdserverpb.Lease/LeaseGrant",
        "/etcdserverpb.Lease/LeaseRevoke",
        "/etcdserverpb.Lease/LeaseTimeToLive",
        "/etcdserverpb.Watch/Watch",
        "/etcdserverpb.Maintenance/Alarm",
        "/etcdserverpb.Maintenance/HashKV",
        "/etcdserverpb.Cluster/MemberAdd",
        "/etcdserverpb.Auth/Authenticate",
    ];
    let invalid: &[&[u8]] = &[
        // A field of two gigabytes.
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x07],
        // A length that overflows.
        &[
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ],
        // A varint without an end.
        &[
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
        // No field number, no such wire type, an end group without a start.
        &[0x00],
        &[0x0f],
        &[0x0c],
    ];
    for method in methods {
        for message in invalid {
            let message = Bytes::from_static(message);
            let answer = soon("a refusal", call(&channel, method, message.clone())).await;
            let code = answer.expect_err("no message").code();
            assert!(
                matches!(code, Code::Internal | Code::Unimplemented),
                "{method} {message:?}: {code}"
            );
        }
    }
    subject.still_serves().await;

    // Random bytes may happen to be requests; they only have to be answered.
    let mut random = Random::seeded("messages");
    for _ in 0..500 {
        let method = methods[random.below(methods.len() as u64) as usize];
        if method == "/etcdserverpb.Watch/Watch" {
            continue;
        }
        let message = Bytes::from(random_bytes(&mut random, 200));
        let _ = soon("an answer", call(&channel, method, message)).await;
    }
    subject.still_serves().await;
    subject.memory_is_below(RESIDENT_BYTES_MAX);
    subject.restart().await.still_serves().await;
}

/// Keys and values are bytes, names are not; unknown fields are ignored.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_any_bytes_are_accepted_and_unknown_fields_ignored() {
    let mut subject = Subject::start(&[]).await;
    let channel = subject.good.channel.clone();
    let mut request = put("", "v");
    request.key = Bytes::from_static(&[0xff, 0xfe, 0x00, 0x80]);
    subject.good.kv.put(request.clone()).await.unwrap();

    // Field 1000, a string.
    let mut message = put("unknown", "v").encode_to_vec();
    message.extend([0xc2, 0x3e, 3, b'a', b'b', b'c']);
    call(&channel, PUT, message.into()).await.unwrap();

    let read = subject.good.kv.range(everything()).await.unwrap();
    let keys: Vec<Bytes> = read.into_inner().kvs.into_iter().map(|kv| kv.key).collect();
    assert_eq!(keys, [Bytes::from_static(b"unknown"), request.key]);

    let urls_not_utf8 = Bytes::from_static(&[0x0a, 2, 0xff, 0xfe]);
    let answer = call(&channel, "/etcdserverpb.Cluster/MemberAdd", urls_not_utf8).await;
    assert_eq!(answer.unwrap_err().code(), Code::Internal);
    subject.still_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_requests_are_refused_before_they_are_read() {
    let mut subject = Subject::start(&[]).await;
    let limit = 1_572_864;
    let (code, text) = (
        EtcdError::RequestTooLarge.code(),
        EtcdError::RequestTooLarge.text(),
    );
    let refused = subject.good.kv.put(put("a", &"v".repeat(limit))).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (code, text));

    // Beyond the limit of the transport: with the text of Go's library.
    let huge = put("a", &"v".repeat(limit + 1_000_000));
    let bytes = huge.encoded_len();
    let refused = subject.good.kv.put(huge).await.unwrap_err();
    let text = format!(
        "grpc: received message larger than max ({bytes} vs. {})",
        limit + (512 << 10)
    );
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, text.as_str())
    );

    // A prefix that announces two or four gigabytes.
    let mut open = Vec::new();
    for length in [i32::MAX as u32, u32::MAX] {
        for _ in 0..20 {
            let message = message_of_length(length, &[0; 1000]);
            let request = [
                greeting(),
                frame(HEADERS, END_HEADERS, 1, &call_headers(PUT)),
                frame(DATA, 0, 1, &message),
            ];
            open.push(say(subject.server.address, &request.concat()));
        }
    }
    subject.still_serves().await;
    subject.memory_is_below(RESIDENT_BYTES_MAX);
}

/// Nests transactions around one put.
fn nested(depth: usize) -> TxnRequest {
    let mut request = txn([put_op("nested", "v")]);
    for _ in 0..depth {
        request = txn([Op::RequestTxn(request)]);
    }
    request
}

/// The limits are those of etcd 3.7: `--max-txn-ops`, and that of its decoder.
#[tokio::test(flavor = "multi_thread")]
async fn txns_nested_too_deeply_are_refused() {
    let mut subject = Subject::start(&[]).await;
    for depth in [60, 127] {
        soon("an answer", subject.good.kv.txn(nested(depth)))
            .await
            .unwrap();
    }
    for depth in [128, 4_998, 50_000] {
        let answer = soon("an answer", subject.good.kv.txn(nested(depth))).await;
        let refused = answer.unwrap_err();
        assert_eq!(refused.message(), EtcdError::TooManyOps.text(), "{depth}");
    }
    subject.still_serves().await;
    // Deeper than a client's stack could bear, and not a transaction at the end.
    let mut message = vec![0xff; 3];
    for _ in 0..5_000 {
        message = wrapped(&wrapped(&message, 4), 2);
    }
    let channel = subject.good.channel.clone();
    let answer = soon(
        "an answer",
        call(&channel, "/etcdserverpb.KV/Txn", message.into()),
    )
    .await;
    assert_eq!(answer.unwrap_err().code(), Code::Internal);
    subject.still_serves().await;
    subject.restart().await.still_serves().await;
}

/// An accepted transaction can be read back from the log and answered.
#[tokio::test(flavor = "multi_thread")]
async fn txns_of_the_greatest_depth_are_served() {
    let mut subject = Subject::start(&["--max-txn-ops=1000000"]).await;
    let answer = soon("an answer", subject.good.kv.txn(nested(4_998))).await;
    assert!(answer.unwrap().into_inner().succeeded);
    let refused = soon("an answer", subject.good.kv.txn(nested(4_999))).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.message(), EtcdError::TooManyOps.text());
    subject.still_serves().await;
    let mut subject = subject.restart().await;
    let read = soon("a get", subject.good.kv.range(get("nested"))).await;
    assert_eq!(read.unwrap().into_inner().kvs[0].version, 1);
    subject.still_serves().await;
}

/// Encodes `bytes` as the only field of a message.
fn wrapped(bytes: &[u8], field: u8) -> Vec<u8> {
    let mut message = vec![field << 3 | 2];
    prost::encode_length_delimiter(bytes.len(), &mut message).unwrap();
    message.extend(bytes);
    message
}

/// Every number at its limits, in every request that has one; afterwards the member also
/// restarts from the resulting log.
#[tokio::test(flavor = "multi_thread")]
async fn server_survives_extreme_numbers() {
    let mut subject = Subject::start(&[]).await;
    subject.good.kv.put(put("a", "1")).await.unwrap();
    let Clients {
        mut kv,
        mut lease,
        mut maintenance,
        ..
    } = subject.good.clone();
    let stream = WatchStream::open(&subject.good).await;
    for number in [i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX] {
        let small = number.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        let range = RangeRequest {
            limit: number,
            sort_order: 1,
            min_mod_revision: number,
            max_mod_revision: number,
            min_create_revision: number,
            max_create_revision: number,
            ..everything()
        };
        let _ = soon("a range", kv.range(range.clone())).await;
        let at = RangeRequest {
            revision: number,
            ..get("a")
        };
        let _ = soon("a range", kv.range(at.clone())).await;
        let unsorted = RangeRequest {
            sort_order: small,
            sort_target: small,
            ..everything()
        };
        let _ = soon("a range", kv.range(unsorted)).await;
        let leased = PutRequest {
            lease: number,
            ..put("a", "2")
        };
        let _ = soon("a put", kv.put(leased.clone())).await;
        for union in [
            TargetUnion::Version(number),
            TargetUnion::CreateRevision(number),
            TargetUnion::ModRevision(number),
            TargetUnion::Lease(number),
        ] {
            let condition = compare("a", CompareResult::Greater, union);
            let strange = Compare {
                result: small,
                target: small,
                ..condition.clone()
            };
            let request = TxnRequest {
                compare: vec![condition, strange],
                ..txn([Op::RequestRange(at.clone()), Op::RequestPut(leased.clone())])
            };
            let _ = soon("a transaction", kv.txn(request)).await;
        }
        for id in [0, number] {
            let _ = soon(
                "a grant",
                lease.lease_grant(LeaseGrantRequest { id, ttl: number }),
            )
            .await;
            let _ = soon("a put", kv.put(leased.clone())).await;
            let time_to_live = LeaseTimeToLiveRequest { id, keys: true };
            let _ = soon("a question", lease.lease_time_to_live(time_to_live)).await;
            let _ = soon(
                "a revocation",
                lease.lease_revoke(LeaseRevokeRequest { id }),
            )
            .await;
        }
        let _ = soon(
            "a hash",
            maintenance.hash_kv(HashKvRequest { revision: number }),
        )
        .await;
        let alarm = AlarmRequest {
            action: small,
            member_id: number as u64,
            alarm: small,
        };
        let _ = soon("an alarm", maintenance.alarm(alarm)).await;
        let compaction = CompactionRequest {
            revision: number,
            physical: true,
        };
        let _ = soon("a compaction", kv.compact(compaction)).await;
        let create = WatchCreateRequest {
            start_revision: number,
            watch_id: number,
            filters: vec![small],
            ..watch_all(0)
        };
        stream.send(RequestUnion::CreateRequest(create)).await;
        stream.cancel(number).await;
        stream.request_progress().await;
    }
    subject.still_serves().await;
    subject.restart().await.still_serves().await;
}

/// Idle and half-sent connections cost other clients nothing.
#[tokio::test(flavor = "multi_thread")]
async fn server_survives_half_open_connections() {
    let mut subject = Subject::start(&[]).await;
    let headers = frame(HEADERS, END_HEADERS, 1, &call_headers(PUT));
    let message = message_of_length(1000, &[0; 500]);
    let halves: Vec<Vec<u8>> = vec![
        Vec::new(),
        PREFACE[..10].to_vec(),
        b"GET /health HT".to_vec(),
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc".to_vec(),
        greeting(),
        [greeting(), headers[..20].to_vec()].concat(),
        [greeting(), headers.clone()].concat(),
        [greeting(), headers.clone(), frame(DATA, 0, 1, &message)].concat(),
        // The request ends in the middle of its message.
        [greeting(), headers, frame(DATA, END_STREAM, 1, &message)].concat(),
    ];
    let mut open: Vec<TcpStream> = Vec::new();
    for half in &halves {
        for _ in 0..100 {
            open.push(say(subject.server.address, half));
        }
        subject.still_serves().await;
    }
    subject.memory_is_below(RESIDENT_BYTES_MAX);
    drop(open);
    subject.still_serves().await;
}

/// As many connections as the machine allows, at most ten thousand.
#[tokio::test(flavor = "multi_thread")]
async fn server_survives_ten_thousand_idle_connections() {
    const CONNECTIONS: u64 = 10_000;
    /// File descriptors for everything else that is open.
    const SPARE: u64 = 500;
    // The server inherits the limit.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let connections = CONNECTIONS.min(hard.saturating_sub(SPARE));
    if connections < CONNECTIONS {
        eprintln!("NOTE: only {connections} connections, since RLIMIT_NOFILE is {hard}");
    }
    let mut subject = Subject::start(&[]).await;
    let mut open = Vec::new();
    for number in 0..connections {
        let hello = if number % 2 == 0 {
            Vec::new()
        } else {
            greeting()
        };
        open.push(say(subject.server.address, &hello));
        if number % 2_000 == 0 {
            subject.still_serves().await;
        }
    }
    subject.still_serves().await;
    subject.memory_is_below(RESIDENT_BYTES_MAX);
    drop(open);
    subject.still_serves().await;
}

/// Clients that request much and never read it.
#[tokio::test(flavor = "multi_thread")]
async fn server_survives_clients_that_never_read_responses() {
    const VALUE_BYTES: usize = 100_000;
    const VALUES: usize = 100;
    const READERS: usize = 20;
    let mut subject = Subject::start(&[]).await;
    let value = "v".repeat(VALUE_BYTES);
    for number in 0..VALUES {
        let request = put(&format!("large/{number}"), &value);
        subject.good.kv.put(request).await.unwrap();
    }
    // A stream of ten megabytes fits into no window; the responses wait in the server.
    let headers = frame(
        HEADERS,
        END_HEADERS,
        1,
        &call_headers("/etcdserverpb.KV/Range"),
    );
    let request = everything().encode_to_vec();
    let message = message_of_length(request.len() as u32, &request);
    let range = [greeting(), headers, frame(DATA, END_STREAM, 1, &message)].concat();
    let readers: Vec<TcpStream> = (0..READERS)
        .map(|_| say(subject.server.address, &range))
        .collect();
    subject.still_serves().await;
    subject.memory_is_below(2 * RESIDENT_BYTES_MAX);
    drop(readers);
}

/// Watchers that never read, during many writes. A watcher that reads sees all events.
#[tokio::test(flavor = "multi_thread")]
async fn server_survives_watchers_that_never_read() {
    const VALUE_BYTES: usize = 10_000;
    const VALUES: usize = 2_000;
    const WATCHERS: usize = 100;
    let mut subject = Subject::start(&[]).await;
    let mut never_read = Vec::new();
    for _ in 0..WATCHERS {
        let clients = subject.server.connect().await;
        let mut stream = WatchStream::open(&clients).await;
        stream.create(watch_all(0)).await;
        never_read.push(stream);
    }
    let mut reads = WatchStream::open(&subject.good).await;
    reads.create(watch_all(0)).await;
    let value = "v".repeat(VALUE_BYTES);
    let mut kv = subject.good.kv.clone();
    let writes = async move {
        for number in 0..VALUES {
            let request = put(&format!("k{}", number % 10), &value);
            soon("a put", kv.put(request)).await.unwrap();
        }
    };
    let (events, ()) = tokio::join!(reads.events(VALUES), writes);
    assert_eq!(events.len(), VALUES);
    subject.still_serves().await;
    subject.memory_is_below(RESIDENT_BYTES_MAX);
    drop(never_read);
    subject.still_serves().await;
}

/// Snapshots that may be sent at once.
const SNAPSHOTS_MAX: usize = 16;
/// More than the buffers of all their connections hold.
const SNAPSHOT_BYTES: usize = 24 << 20;

/// Clients that request snapshots and read nothing: more than a few are refused, and the member
/// keeps writing and needs little memory. When they disconnect, snapshots are served again.
#[tokio::test(flavor = "multi_thread")]
async fn idle_snapshot_streams_are_limited_in_number_and_memory() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    let value = vec![b'x'; 1 << 20];
    for number in 0..SNAPSHOT_BYTES >> 20 {
        let large = PutRequest {
            key: format!("large/{number}").into(),
            value: value.clone().into(),
            ..PutRequest::default()
        };
        clients.kv.put(large).await.unwrap();
    }
    let before = server.process.resident_bytes();
    let mut held = Vec::new();
    for _ in 0..SNAPSHOTS_MAX {
        let mut others = server.connect().await;
        let snapshot = others.maintenance.snapshot(SnapshotRequest {}).await;
        held.push((others, snapshot.unwrap().into_inner()));
    }
    for _ in 0..100 {
        let refused = clients.maintenance.snapshot(SnapshotRequest {}).await;
        let (code, text) = refusal(refused.map(drop));
        assert_eq!(code, Code::ResourceExhausted, "{text}");
        assert!(text.starts_with("etcdserver: too many snapshots"), "{text}");
    }
    let metrics = server.get("/metrics").body;
    let refused = "portunus_snapshots_refused_total 100";
    assert!(metrics.lines().any(|line| line == refused), "{metrics}");
    for _ in 0..20 {
        soon("a put", clients.kv.put(put("small", "1")))
            .await
            .unwrap();
    }
    let grown = server.process.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB", grown >> 20);

    drop(held);
    let mut whole = common::eventually("room for a snapshot", async || {
        let snapshot = clients.maintenance.snapshot(SnapshotRequest {}).await;
        snapshot.ok().map(tonic::Response::into_inner)
    })
    .await;
    let mut bytes = 0;
    while let Some(blob) = whole.message().await.unwrap() {
        bytes += blob.blob.len();
    }
    assert!(bytes > SNAPSHOT_BYTES, "{bytes}");
    server.stop();
}

/// Hash requests sent at once, on separate connections.
const HASHES_SENT: usize = 64;

/// A hash request is small and makes the member read all of its data.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_hashes_are_limited() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    for number in 0..32 {
        let large = PutRequest {
            key: format!("large/{number}").into(),
            value: vec![b'x'; 1 << 20].into(),
            ..PutRequest::default()
        };
        clients.kv.put(large).await.unwrap();
    }
    let expected = clients.maintenance.hash_kv(HashKvRequest::default()).await;
    let expected = expected.unwrap().into_inner().hash;
    let mut refused = 0;
    // The duration of a hash depends on the machine, so a round may end without a refusal.
    soon("a refusal", async {
        while refused == 0 {
            refused = refused_hashes(&server, expected).await;
        }
    })
    .await;
    let metrics = server.get("/metrics").body;
    let counted = format!("portunus_hashes_refused_total {refused}");
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    soon("a put", clients.kv.put(put("small", "1")))
        .await
        .unwrap();
    let hash = clients.maintenance.hash(HashRequest {});
    soon("a hash", hash).await.unwrap();
    server.stop();
}

/// Requests many hashes at once. All are correct or refused; returns how many are refused.
async fn refused_hashes(server: &Server, expected: u32) -> usize {
    let mut connections = Vec::new();
    for _ in 0..HASHES_SENT {
        connections.push(server.connect().await);
    }
    let asked = connections.into_iter().enumerate();
    let asked = asked.map(|(number, mut clients)| {
        tokio::spawn(async move {
            let maintenance = &mut clients.maintenance;
            match number % 2 {
                0 => maintenance.hash(HashRequest {}).await.map(|_| None),
                _ => {
                    let hash = maintenance.hash_kv(HashKvRequest::default()).await;
                    hash.map(|hash| Some(hash.into_inner().hash))
                }
            }
        })
    });
    let asked: Vec<_> = asked.collect();
    let mut refused = 0;
    for answer in asked {
        match answer.await.unwrap() {
            Ok(hash) => assert!(hash.is_none_or(|hash| hash == expected)),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                let text = status.message();
                assert!(text.starts_with("etcdserver: too many hashes"), "{text}");
                refused += 1;
            }
        }
    }
    refused
}
