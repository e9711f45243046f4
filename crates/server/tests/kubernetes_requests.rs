//! The requests of kube-apiserver that no single service shows: pages, streams, counts, and leases
//! that many keys share.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[allow(dead_code, unused_imports)] // shared with `bad_input.rs`
mod raw;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::requests::{delete, get, put, txn};
use common::watching::{WatchStream, show};
use common::{Clients, Server, data_dir, eventually, refusal, soon};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::{
    CompactionRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
    RangeResponse, WatchCreateRequest,
};
use portunus_proto::mvccpb::KeyValue;
use tonic::{Code, Streaming};

const PREFIX: &str = "/registry/pods/";
const PREFIX_END: &str = "/registry/pods0";

async fn started(flags: &[&str]) -> (tempfile::TempDir, Server, Clients) {
    let (guard, dir) = data_dir();
    let server = Server::start(&dir, flags);
    let clients = server.connect().await;
    (guard, server, clients)
}

fn key(number: usize) -> String {
    format!("{PREFIX}{number:05}")
}

/// All objects of a resource.
fn objects() -> RangeRequest {
    common::requests::range(PREFIX, PREFIX_END)
}

/// Writes keys with these numbers, a hundred in a transaction.
async fn write(clients: &mut Clients, numbers: std::ops::Range<usize>, value: &str, lease: i64) {
    let numbers: Vec<usize> = numbers.collect();
    for numbers in numbers.chunks(100) {
        let mut request = txn([]);
        request.success = numbers
            .iter()
            .map(|&number| {
                let put = Op::RequestPut(PutRequest {
                    lease,
                    ..put(&key(number), value)
                });
                portunus_proto::etcdserverpb::RequestOp { request: Some(put) }
            })
            .collect();
        clients.kv.txn(request).await.unwrap();
    }
}

async fn read(clients: &mut Clients, request: RangeRequest) -> RangeResponse {
    clients.kv.range(request).await.unwrap().into_inner()
}

/// Proves: K8, C20
#[tokio::test]
async fn more_and_count_of_every_page_are_exact_for_the_rest() {
    const KEYS: usize = 1000;
    let (_guard, _server, mut clients) = started(&[]).await;
    write(&mut clients, 0..KEYS, "v", 0).await;
    for (limits, is_pinned) in [
        (&[100, 200, 400, 800][..], false),
        (&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], false),
        (&[500, 500], true),
        (&[999, 1], true),
        (&[250, 500, 10_000], true),
    ] {
        let mut rest = KEYS;
        let mut first = PREFIX.to_owned();
        let mut pinned = 0;
        for &limit in limits {
            let page = RangeRequest {
                key: first.into(),
                limit,
                revision: pinned,
                ..objects()
            };
            let page = read(&mut clients, page).await;
            let returned = rest.min(usize::try_from(limit).unwrap());
            assert_eq!(page.kvs.len(), returned, "{limit} of {limits:?}");
            assert_eq!(page.count, i64::try_from(rest).unwrap(), "{limits:?}");
            assert_eq!(page.more, returned < rest, "{limit} of {limits:?}");
            rest -= returned;
            let newest = page.header.unwrap().revision;
            first = format!("{}\0", key(KEYS - rest - 1));
            if is_pinned {
                // The header has the revision of the store, not the one that was read.
                assert!(pinned == 0 || newest > pinned);
                pinned = if pinned == 0 { newest } else { pinned };
                // Keys that are created and deleted in the rest of the list, later.
                let new = format!("{}/new-{rest}", key(KEYS - 1));
                clients.kv.put(put(&new, "v")).await.unwrap();
                let later = read(&mut clients, objects()).await.count;
                assert_eq!(later, i64::try_from(KEYS + 1).unwrap());
                clients.kv.delete_range(delete(&new)).await.unwrap();
            }
            if rest == 0 {
                break;
            }
        }
        assert_eq!(rest, 0, "{limits:?}");
    }
}

/// Proves: K11
#[tokio::test]
async fn counts_and_lists_of_keys_have_no_values() {
    let (_guard, _server, mut clients) = started(&[]).await;
    write(&mut clients, 0..200, "value", 0).await;
    let count = RangeRequest {
        count_only: true,
        ..objects()
    };
    let counted = read(&mut clients, count).await;
    assert_eq!((counted.count, counted.kvs.len()), (200, 0));
    let keys = RangeRequest {
        keys_only: true,
        ..objects()
    };
    let keys = read(&mut clients, keys).await;
    assert_eq!((keys.count, keys.kvs.len()), (200, 200));
    for (number, kv) in keys.kvs.iter().enumerate() {
        assert_eq!(kv.key, key(number));
        assert!(kv.value.is_empty() && kv.mod_revision > 1);
    }
}

/// Reads the pieces of a stream.
async fn pieces(
    mut stream: Streaming<portunus_proto::etcdserverpb::RangeStreamResponse>,
) -> Vec<RangeResponse> {
    let mut pieces = Vec::new();
    while let Some(piece) = soon("a piece", stream.message()).await.unwrap() {
        pieces.push(piece.range_response.unwrap());
    }
    pieces
}

/// Proves: K10
#[tokio::test]
async fn pieces_of_a_stream_grow_to_the_request_limit_and_the_last_has_the_header() {
    const SMALL_KEYS: usize = 600;
    const KEYS: usize = 800;
    let (_guard, _server, mut clients) = started(&["--max-request-bytes=20000"]).await;
    for number in 0..SMALL_KEYS {
        clients
            .kv
            .put(put(&key(number), &"v".repeat(80)))
            .await
            .unwrap();
    }
    for number in SMALL_KEYS..KEYS {
        clients
            .kv
            .put(put(&key(number), &"v".repeat(8000)))
            .await
            .unwrap();
    }
    let plain = read(&mut clients, objects()).await;
    let stream = clients.kv.range_stream(objects()).await.unwrap();
    let pieces = pieces(stream.into_inner()).await;
    let lengths: Vec<usize> = pieces.iter().map(|piece| piece.kvs.len()).collect();
    // Doubled while a piece is below half of the limit, halved while it is above the double.
    assert_eq!(lengths[..4], [10, 20, 40, 80], "{lengths:?}");
    assert!(lengths.contains(&160) && lengths.iter().all(|&length| length <= 160));
    let last_large = lengths[lengths.len() - 2];
    assert!(last_large * 8000 <= 40_000, "{lengths:?}");
    let (last, others) = pieces.split_last().unwrap();
    for piece in others {
        assert!(piece.header.is_none() && piece.count == 0 && !piece.more);
    }
    assert_eq!((last.header, last.count), (plain.header, plain.count));
    let streamed: Vec<KeyValue> = pieces.into_iter().flat_map(|piece| piece.kvs).collect();
    assert_eq!(streamed, plain.kvs);

    for (request, expected) in [
        (
            RangeRequest {
                sort_target: 2,
                sort_order: 1,
                ..objects()
            },
            EtcdError::RangeStreamSort,
        ),
        (
            RangeRequest {
                max_create_revision: 9,
                ..objects()
            },
            EtcdError::RangeStreamRevisionFilter,
        ),
    ] {
        let (code, text) = refusal(clients.kv.range_stream(request).await);
        assert_eq!((code, &*text), (Code::Unimplemented, expected.text()));
    }
}

/// More bytes than the windows of the connection hold, so that the server reads the rest of the
/// stream after the change.
///
/// Proves: K10
#[tokio::test]
async fn stream_stays_at_its_revision_and_fails_when_that_is_compacted() {
    const KEYS: usize = 300;
    let (_guard, _server, mut clients) = started(&[]).await;
    for number in 0..KEYS {
        let large = put(&key(number), &"v".repeat(100_000));
        clients.kv.put(large).await.unwrap();
    }
    let before = read(&mut clients, objects()).await;
    let mut stream = clients
        .kv
        .range_stream(objects())
        .await
        .unwrap()
        .into_inner();
    let first = stream.message().await.unwrap().unwrap();
    let mut streamed = first.range_response.unwrap().kvs;
    let last = key(KEYS - 1);
    clients.kv.put(put(&last, "changed")).await.unwrap();
    clients.kv.put(put(&key(KEYS), "later")).await.unwrap();
    let last_piece = loop {
        let piece = soon("a piece", stream.message()).await.unwrap().unwrap();
        let mut piece = piece.range_response.unwrap();
        streamed.append(&mut piece.kvs);
        if piece.header.is_some() {
            break piece;
        }
    };
    assert_eq!(streamed, before.kvs);
    assert_eq!(last_piece.count, before.count);
    assert_eq!(last_piece.header, before.header);

    let mut stream = clients
        .kv
        .range_stream(objects())
        .await
        .unwrap()
        .into_inner();
    stream.message().await.unwrap().unwrap();
    let changed = clients.kv.put(put(&last, "again")).await.unwrap();
    let revision = changed.into_inner().header.unwrap().revision;
    let compaction = CompactionRequest {
        revision,
        physical: false,
    };
    clients.kv.compact(compaction).await.unwrap();
    let refused = loop {
        match soon("a piece", stream.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without an error"),
            Err(status) => break (status.code(), status.message().to_owned()),
        }
    };
    let compacted = EtcdError::Compacted;
    assert_eq!(refused, (compacted.code(), compacted.text().to_owned()));
}

/// Proves: C17
#[tokio::test]
async fn progress_is_answered_at_once_on_a_fresh_watch_and_after_the_events_of_a_late_one() {
    const KEYS: usize = 2000;
    let (_guard, _server, mut clients) = started(&[]).await;
    let mut fresh = WatchStream::open(&clients).await;
    fresh.create(common::watching::watch("never written")).await;
    fresh.request_progress().await;
    let progress = fresh.next().await;
    assert_eq!(progress.header.unwrap().revision, 1);

    for number in 0..KEYS {
        clients.kv.put(put(&key(number), "v")).await.unwrap();
    }
    let newest = read(&mut clients, get("x")).await.header.unwrap().revision;
    // From the beginning of the history, with requests before the first event is read.
    let mut late = WatchStream::open(&clients).await;
    let create = WatchCreateRequest {
        key: PREFIX.into(),
        range_end: PREFIX_END.into(),
        start_revision: 2,
        ..WatchCreateRequest::default()
    };
    late.create(create).await;
    let mut seen = 1;
    loop {
        late.request_progress().await;
        let response = late.next().await;
        if response.events.is_empty() {
            let notice = response.header.unwrap().revision;
            assert!(notice <= seen, "progress {notice} before event {seen}");
            if notice == newest {
                break;
            }
        }
        for event in &response.events {
            let revision = event.kv.as_ref().unwrap().mod_revision;
            assert_eq!(revision, seen + 1);
            seen = revision;
        }
    }
    assert_eq!(seen, newest);
}

/// The lease of events: many keys, moved to a new lease when they are written again.
///
/// Proves: K16
#[tokio::test]
async fn lease_of_many_keys_expires_by_itself_without_the_keys_that_moved() {
    const KEYS: usize = 1000;
    let (_guard, _server, mut clients) = started(&[]).await;
    for (id, ttl) in [(1, 2), (2, 3660)] {
        let grant = LeaseGrantRequest { id, ttl };
        clients.lease.lease_grant(grant).await.unwrap();
    }
    write(&mut clients, 0..KEYS, "old", 1).await;
    write(&mut clients, 0..KEYS / 2, "new", 2).await;
    let left = eventually("the expiry of the first lease", async || {
        let left = clients.kv.clone().range(objects()).await.unwrap();
        let left = left.into_inner();
        (left.count < i64::try_from(KEYS).unwrap()).then_some(left)
    })
    .await;
    assert_eq!(left.count, i64::try_from(KEYS / 2).unwrap());
    assert!(left.kvs.iter().all(|kv| kv.lease == 2 && kv.value == "new"));
    let mut stream = WatchStream::open(&clients).await;
    let create = WatchCreateRequest {
        key: PREFIX.into(),
        range_end: PREFIX_END.into(),
        start_revision: left.header.unwrap().revision,
        ..WatchCreateRequest::default()
    };
    stream.create(create).await;
    let events = stream.next().await.events;
    assert_eq!(events.len(), KEYS / 2, "one revision deletes all of them");
    assert!(show(&events[0]).starts_with("DELETE"));
}

/// A read of a member that has applied every acknowledged write does not wait for the deletions.
///
/// Proves: C18
#[tokio::test(flavor = "multi_thread")]
async fn member_serves_reads_while_it_revokes_a_lease_with_many_keys() {
    const KEYS: usize = 50_000;
    let (_guard, server, mut clients) = started(&[]).await;
    let grant = LeaseGrantRequest { id: 1, ttl: 3660 };
    clients.lease.lease_grant(grant).await.unwrap();
    write(&mut clients, 0..KEYS, "v", 1).await;
    let mut other = server.connect().await;
    let revocation = tokio::spawn(async move {
        let begin = Instant::now();
        let revoke = LeaseRevokeRequest { id: 1 };
        clients.lease.lease_revoke(revoke).await.unwrap();
        begin.elapsed()
    });
    let mut longest_read = Duration::ZERO;
    let count = RangeRequest {
        serializable: true,
        count_only: true,
        ..objects()
    };
    let mut counts = vec![];
    while !revocation.is_finished() {
        let begin = Instant::now();
        counts.push(read(&mut other, count.clone()).await.count);
        longest_read = longest_read.max(begin.elapsed());
    }
    let took = revocation.await.unwrap();
    // One that waited for the deletions would take most of the revocation.
    assert!(
        longest_read < took / 2,
        "a read took {longest_read:?} of the {took:?} of the revocation"
    );
    counts.push(read(&mut other, objects()).await.count);
    counts.dedup();
    // All keys or none: no reader sees a part of the revocation.
    assert_eq!(counts, [i64::try_from(KEYS).unwrap(), 0]);
}

/// The pings of an idle connection, with nothing between them: kube-apiserver sends one in 30 s.
///
/// Proves: K2
#[tokio::test]
async fn every_ping_of_an_idle_connection_is_acknowledged() {
    const PINGS: u8 = 50;
    const ACKNOWLEDGED: u8 = 1;
    const GOAWAY: u8 = 7;
    let (_guard, server, _clients) = started(&[]).await;
    let mut connection = raw::say(server.address, &raw::greeting());
    connection.set_read_timeout(Some(common::WAIT_MAX)).unwrap();
    for number in 0..PINGS {
        let ping = raw::frame(raw::PING, 0, 0, &[number; 8]);
        connection.write_all(&ping).unwrap();
        loop {
            let mut header = [0; 9];
            connection.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            connection.read_exact(&mut payload).unwrap();
            match (header[3], header[4]) {
                (raw::PING, ACKNOWLEDGED) => {
                    assert_eq!(payload, [number; 8]);
                    break;
                }
                (GOAWAY, _) => panic!("closed after {number} pings"),
                _ => {}
            }
        }
    }
}
