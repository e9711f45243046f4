//! Snapshot transfer between two members: complete, truncated, refused.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use common::{
    Call, Member, ask, good_headers, message, quick, raw_answer, raw_request, snapshot, url,
};
use portunus_proto::raftpb::MessageType;
use portunus_rafthttp::codec;
use portunus_rafthttp::{Config, SnapshotRefused};
use prost::Message as _;

const PIECE_BYTES: usize = 64 << 10;

/// Member 1, whose database has this many pieces and ends with an error if `fails`.
async fn sender(pieces: usize, fails: bool) -> Member {
    let a = Member::start(1).await;
    *a.recorder.opener.lock().unwrap() = Some(Box::new(move || {
        let piece = Bytes::from(vec![9; PIECE_BYTES]);
        let error = fails.then(|| Err(io::Error::other("bad disk")));
        let body = std::iter::repeat_n(piece, pieces).map(Ok).chain(error);
        Ok(Box::pin(tokio_stream::iter(body)))
    }));
    a
}

async fn received(b: &mut Member) -> (u64, u64, bool) {
    b.next(|call| match call {
        Call::Received {
            index,
            bytes,
            whole,
        } => Some((*index, *bytes, *whole)),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn snapshot_of_100_mb_is_received_completely_and_reported() {
    let mut a = sender(1600, false).await;
    let mut b = Member::start(2).await;
    a.add_peer(&b);
    a.transport.send(vec![snapshot(1, 2, 77)]);
    assert_eq!(
        received(&mut b).await,
        (77, 1600 * PIECE_BYTES as u64, true)
    );
    assert!(a.next_snapshot_report().await);
    assert_eq!(a.metric("etcd_network_snapshot_send_success", "2"), 1.0);
    assert_eq!(
        a.metric("etcd_network_snapshot_send_inflights_total", "2"),
        0.0
    );
}

#[tokio::test]
async fn snapshot_sender_waits_for_a_slow_receiver() {
    let opened = Arc::new(AtomicU64::new(0));
    let a = Member::start(1).await;
    let counter = opened.clone();
    *a.recorder.opener.lock().unwrap() = Some(Box::new(move || {
        let counter = counter.clone();
        let body = (0..16_000).map(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from(vec![9; PIECE_BYTES]))
        });
        Ok(Box::pin(tokio_stream::iter(body)))
    }));
    // A receiver that accepts connections and never reads.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    a.transport.add_peer(2, &[url(address)]);
    a.transport.send(vec![snapshot(1, 2, 1)]);
    let mut accepted = Vec::new();
    let accept = async {
        loop {
            accepted.push(listener.accept().await.unwrap());
        }
    };
    let quiet = async {
        let mut last = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = opened.load(Ordering::Relaxed);
            if now > 0 && now == last {
                return now;
            }
            last = now;
        }
    };
    let taken = tokio::select! {
        () = accept => 0,
        taken = quiet => taken,
    };
    assert!(taken < 8_000, "{taken} pieces are under way");
    a.transport.stop().await;
}

#[tokio::test]
async fn truncated_database_is_never_complete() {
    let mut a = sender(10, true).await;
    let mut b = Member::start(2).await;
    a.add_peer(&b);
    a.transport.send(vec![snapshot(1, 2, 5)]);
    let (_, bytes, whole) = received(&mut b).await;
    assert!(!whole && bytes <= 10 * PIECE_BYTES as u64);
    assert!(!a.next_snapshot_report().await);
    assert_eq!(a.metric("etcd_network_snapshot_send_failures", "2"), 1.0);
}

#[tokio::test]
async fn database_of_a_sender_that_disconnects_is_never_complete() {
    let mut b = Member::start(2).await;
    b.transport.add_peer(1, &["http://127.0.0.1:1".to_owned()]);
    for framing in [
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "1000000"),
    ] {
        let mut headers = good_headers(1);
        headers.push((framing.0.into(), framing.1.into()));
        let mut envelope = BytesMut::new();
        codec::message::encode(&snapshot(1, 2, 6), &mut envelope);
        envelope.put_slice(b"the start of a database");
        let mut body = Vec::new();
        if framing.1 == "chunked" {
            body.extend_from_slice(format!("{:x}\r\n", envelope.len()).as_bytes());
        }
        body.extend_from_slice(&envelope);
        body.extend_from_slice(b"\r\n");
        let stream = raw_request(b.address, "POST /raft/snapshot", &headers, &body).await;
        // The member has received the body before the connection breaks.
        common::until(|| b.metric("etcd_network_snapshot_receive_inflights_total", "1") == 1.0)
            .await;
        drop(stream);
        let (index, _, whole) = received(&mut b).await;
        assert_eq!((index, whole), (6, false), "{framing:?}");
    }
}

#[tokio::test]
async fn refused_snapshot_is_answered_with_the_status_of_its_cause() {
    let b = Member::start(2).await;
    let mut body = BytesMut::new();
    codec::message::encode(&snapshot(1, 2, 6), &mut body);
    let refusals: [(SnapshotRefused, u16); 3] = [
        (
            SnapshotRefused::Failed {
                reason: "no space".into(),
            },
            500,
        ),
        (
            SnapshotRefused::Mismatch {
                reason: "too old".into(),
            },
            412,
        ),
        // 403 would make the sender stop, but it was not removed.
        (SnapshotRefused::SenderRemoved, 412),
    ];
    for (refusal, expected) in refusals {
        *b.recorder.refuse_snapshot.lock().unwrap() = Some(refusal);
        let (status, text) = ask(b.address, "POST /raft/snapshot", &good_headers(1), &body).await;
        assert_eq!(status, expected, "{text}");
    }
    b.recorder.removed.lock().unwrap().insert(1);
    let (status, _) = ask(b.address, "POST /raft/snapshot", &good_headers(1), &body).await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn refused_or_missing_snapshot_is_reported_as_failed() {
    let mut a = sender(100, false).await;
    let b = Member::start(2).await;
    a.add_peer(&b);
    *b.recorder.refuse_snapshot.lock().unwrap() = Some(SnapshotRefused::Failed {
        reason: "no space".into(),
    });
    a.transport.send(vec![snapshot(1, 2, 5)]);
    assert!(!a.next_snapshot_report().await);
    *a.recorder.opener.lock().unwrap() = None;
    a.transport.send(vec![snapshot(1, 2, 5)]);
    assert!(!a.next_snapshot_report().await);
    // To an id that is not a peer.
    a.transport.send(vec![snapshot(1, 99, 5)]);
    assert!(!a.next_snapshot_report().await);
}

#[tokio::test]
async fn upload_without_progress_is_aborted() {
    let config = Config {
        snapshot_stall_timeout: Duration::from_millis(200),
        snapshot_answer_timeout: Duration::from_millis(200),
        ..quick()
    };
    let mut a = Member::start_with(1, config, |router| router).await;
    *a.recorder.opener.lock().unwrap() = Some(Box::new(|| {
        Ok(Box::pin(tokio_stream::iter([Ok(Bytes::from_static(b"x"))])))
    }));
    // A peer that accepts connections and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    a.transport.add_peer(2, &[url(address)]);
    a.transport.send(vec![snapshot(1, 2, 5)]);
    assert!(!a.next_snapshot_report().await);
}

#[tokio::test]
async fn invalid_snapshot_request_is_refused() {
    let b = Member::start(2).await;
    let vote = message(MessageType::MsgVote, 1, 2, 1);
    let mut not_a_snapshot = BytesMut::new();
    codec::message::encode(&vote, &mut not_a_snapshot);
    let mut elsewhere = BytesMut::new();
    codec::message::encode(&snapshot(1, 3, 1), &mut elsewhere);
    let mut too_long = BytesMut::new();
    too_long.put_u64((64 << 20) + 1);
    too_long.put_slice(&vote.encode_to_vec());
    let cases: [(&str, &[u8], u16, &str); 5] = [
        (
            "another type",
            &not_a_snapshot,
            400,
            "wrong raft message type",
        ),
        ("for another member", &elsewhere, 412, "to field mismatch"),
        ("an envelope above 64 MiB", &too_long, 400, "limit exceeded"),
        (
            "half an envelope",
            &not_a_snapshot[..9],
            400,
            "unexpected EOF",
        ),
        ("nothing", b"", 400, "unexpected EOF"),
    ];
    for (what, body, expected, reason) in cases {
        let (status, text) = ask(b.address, "POST /raft/snapshot", &good_headers(1), body).await;
        assert_eq!(status, expected, "{what}: {text}");
        assert!(text.contains(reason), "{what}: {text}");
    }
    // Refused before the sender completes the body.
    let mut headers = good_headers(1);
    headers.push(("Transfer-Encoding".into(), "chunked".into()));
    let body = [b"8\r\n".as_slice(), &(2u64 << 30).to_be_bytes(), b"\r\n"].concat();
    let mut stream = raw_request(b.address, "POST /raft/snapshot", &headers, &body).await;
    assert_eq!(raw_answer(&mut stream).await.0, 400);
}
