//! Broken, foreign or hostile peers: refused with etcd's texts, without using much memory.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::log::Log;
use common::{
    Call, Member, append, ask, good_headers, message, quick, raw_answer, raw_request, until, url,
};
use portunus_proto::raftpb::MessageType;
use portunus_rafthttp::Config;
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn with(
    mut headers: Vec<(String, String)>,
    name: &str,
    value: Option<&str>,
) -> Vec<(String, String)> {
    headers.retain(|(existing, _)| existing != name);
    if let Some(value) = value {
        headers.push((name.into(), value.into()));
    }
    headers
}

fn stream_headers() -> Vec<(String, String)> {
    with(good_headers(2), "X-Raft-To", Some("1"))
}

/// Member 1 with peer 2.
async fn member() -> Member {
    let a = Member::start(1).await;
    a.transport.add_peer(2, &["http://127.0.0.1:1".to_owned()]);
    a
}

#[tokio::test]
async fn foreign_requests_are_refused_with_etcds_texts() {
    let a = member().await;
    let cases = [
        ("X-Etcd-Cluster-ID", Some("c2"), "cluster ID mismatch\n"),
        ("X-Etcd-Cluster-ID", None, "cluster ID mismatch\n"),
        ("X-Server-Version", Some("2.3.0"), "incompatible version\n"),
        ("X-Server-Version", Some("latest"), "incompatible version\n"),
        ("X-Server-Version", None, "incompatible version\n"),
        (
            "X-Min-Cluster-Version",
            Some("3.9.0"),
            "incompatible version\n",
        ),
    ];
    for path in [
        "GET /raft/stream/message/2",
        "GET /raft/stream/msgapp/2",
        "POST /raft",
        "POST /raft/snapshot",
    ] {
        for (name, value, expected_text) in cases {
            let headers = with(stream_headers(), name, value);
            let (status, text) = ask(a.address, path, &headers, b"").await;
            assert_eq!(status, 412, "{path} {name} {value:?}");
            assert!(
                text.ends_with(expected_text),
                "{path} {name} {value:?}: {text}"
            );
            assert!(text.contains("x-etcd-cluster-id: c1\r\n"), "{text}");
            let has_version = text.contains("x-server-version: 3.8.0\r\n");
            assert_eq!(has_version, path.contains("stream"), "{text}");
        }
    }
}

#[tokio::test]
async fn stream_request_is_refused_unless_its_reader_is_a_peer() {
    let a = member().await;
    a.recorder.removed.lock().unwrap().insert(0xdead);
    let cases = [
        (
            "GET /raft/stream/message/3",
            Some("1"),
            404,
            "error sender not found\n",
        ),
        (
            "GET /raft/stream/message/xyz",
            Some("1"),
            404,
            "invalid from\n",
        ),
        ("GET /raft/stream/other/2", Some("1"), 404, "invalid path\n"),
        ("GET /raft/stream/2", Some("1"), 404, "invalid path\n"),
        (
            "GET /raft/stream/message/dead",
            Some("1"),
            410,
            "removed member\n",
        ),
        (
            "GET /raft/stream/message/2",
            Some("9"),
            412,
            "to field mismatch\n",
        ),
        (
            "GET /raft/stream/message/2",
            None,
            412,
            "to field mismatch\n",
        ),
        (
            "POST /raft/stream/message/2",
            Some("1"),
            405,
            "Method Not Allowed\n",
        ),
        ("GET /raft", Some("1"), 405, "Method Not Allowed\n"),
        ("GET /raft/snapshot", Some("1"), 405, "Method Not Allowed\n"),
    ];
    for (path, to, expected, expected_text) in cases {
        let headers = with(stream_headers(), "X-Raft-To", to);
        let (status, text) = ask(a.address, path, &headers, b"").await;
        assert_eq!(status, expected, "{path}: {text}");
        assert!(text.ends_with(expected_text), "{path}: {text}");
        if path.contains("stream") {
            assert!(text.contains("x-etcd-cluster-id: c1\r\n"), "{text}");
            assert!(text.contains("x-server-version: 3.8.0\r\n"), "{text}");
        }
    }
}

#[tokio::test]
async fn posted_messages_are_checked() {
    let mut a = member().await;
    a.recorder.removed.lock().unwrap().insert(0xdead);
    let address = a.address;
    let post =
        |body: Vec<u8>| async move { ask(address, "POST /raft", &good_headers(2), &body).await.0 };
    let vote = |from, to| message(MessageType::MsgVote, from, to, 1).encode_to_vec();
    assert_eq!(post(b"\xff\xff garbage".to_vec()).await, 400);
    assert_eq!(post(vote(0xdead, 1)).await, 403);
    assert_eq!(post(vote(2, 7)).await, 412);
    assert_eq!(post(vote(0, 1)).await, 400, "a sender of 0 is invalid");
    assert_eq!(post(vote(2, 1)).await, 204);
    assert_eq!(a.next_step().await.from, 2);
    *a.recorder.refuse_steps.lock().unwrap() = true;
    assert_eq!(post(vote(2, 1)).await, 500);
}

#[tokio::test]
async fn body_above_the_limit_is_refused_when_announced_or_received() {
    let config = Config {
        message_bytes_max: 1000,
        ..quick()
    };
    let a = Member::start_with(1, config, |router| router).await;
    let headers = with(good_headers(2), "Content-Length", Some("2147483648"));
    let (status, _) = ask(a.address, "POST /raft", &headers, b"").await;
    assert_eq!(status, 413);
    // Sent in chunks without an announced length.
    let mut headers = good_headers(2);
    headers.push(("Transfer-Encoding".into(), "chunked".into()));
    let body = [b"7d0\r\n".as_slice(), &[1; 2000], b"\r\n"].concat();
    let mut stream = raw_request(a.address, "POST /raft", &headers, &body).await;
    assert_eq!(raw_answer(&mut stream).await.0, 413);
}

#[tokio::test]
async fn incomplete_body_is_refused_after_the_read_timeout() {
    let config = Config {
        stream_read_timeout: Duration::from_millis(200),
        ..quick()
    };
    let a = Member::start_with(1, config, |router| router).await;
    let headers = with(good_headers(2), "Content-Length", Some("10"));
    let (status, _) = ask(a.address, "POST /raft", &headers, b"half").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn member_serves_after_requests_that_are_not_http() {
    let mut a = member().await;
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01".as_slice(),
        b"\x00\x00\x00\x00\x7f\xff\xff\xff",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = tokio::net::TcpStream::connect(a.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 2"));
    }
    let vote = message(MessageType::MsgVote, 2, 1, 1).encode_to_vec();
    let (status, _) = ask(a.address, "POST /raft", &good_headers(2), &vote).await;
    assert_eq!(status, 204);
    a.next_step().await;
}

#[tokio::test]
async fn repeated_stream_request_replaces_the_first_stream() {
    let a = member().await;
    let path = "GET /raft/stream/message/2";
    let mut first = raw_request(a.address, path, &stream_headers(), b"").await;
    assert_eq!(raw_answer(&mut first).await.0, 200);
    let mut second = raw_request(a.address, path, &stream_headers(), b"").await;
    assert_eq!(raw_answer(&mut second).await.0, 200);
    // The first response ends with the last chunk.
    let mut rest = Vec::new();
    tokio::time::timeout(common::TIMEOUT, async {
        let mut buffer = [0; 1024];
        while !rest.ends_with(b"0\r\n\r\n") {
            let count = first.read(&mut buffer).await.unwrap();
            assert!(count > 0, "cut off");
            rest.extend_from_slice(&buffer[..count]);
        }
    })
    .await
    .unwrap();
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 0x77)]);
    let mut arrived = Vec::new();
    tokio::time::timeout(common::TIMEOUT, async {
        let mut buffer = [0; 1024];
        while !arrived.windows(2).any(|pair| pair == [0x30, 0x77]) {
            let count = second.read(&mut buffer).await.unwrap();
            assert!(count > 0, "cut off");
            arrived.extend_from_slice(&buffer[..count]);
        }
    })
    .await
    .unwrap();
    assert!(a.transport.is_active(2));
}

#[tokio::test]
async fn number_of_remotes_is_bounded() {
    let config = Config {
        remotes_max: 3,
        ..quick()
    };
    let a = Member::start_with(1, config, |router| router).await;
    for id in 10..30 {
        let headers = with(good_headers(id), "X-PeerURLs", Some("http://127.0.0.1:1"));
        let headers = with(headers, "X-Raft-To", Some("1"));
        let path = format!("GET /raft/stream/message/{id:x}");
        assert_eq!(ask(a.address, &path, &headers, b"").await.0, 404);
    }
    for id in 10..30 {
        a.transport
            .send(vec![message(MessageType::MsgVote, 1, id, 1)]);
    }
    until(|| a.metric("etcd_network_peer_sent_failures_total", "c") >= 1.0).await;
    assert_eq!(a.metric("etcd_network_peer_sent_failures_total", "d"), 0.0);
}

/// A peer that answers every stream with these bytes and keeps the connection open.
async fn peer_that_streams(head: &'static str, body: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&body).await;
            open.push(stream);
        }
    });
    address
}

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nX-Server-Version: 3.7.1\r\nX-Etcd-Cluster-ID: c1\r\n\r\n";

#[tokio::test]
async fn stream_of_invalid_bytes_is_closed_each_time() {
    let announcement = [&[2], (2u64 << 30).to_be_bytes().as_slice()].concat();
    for body in [
        b"garbage and more garbage".to_vec(),
        (2u64 << 30).to_be_bytes().to_vec(),
        announcement,
        vec![0xff; 5000],
    ] {
        let (log, _guard) = Log::record();
        let address = peer_that_streams(STREAM_HEAD, body).await;
        let mut a = Member::start(1).await;
        a.transport.add_peer(2, &[url(address)]);
        let failures = "etcd_network_peer_received_failures_total";
        until(|| a.metric(failures, "2") >= 3.0).await;
        let given_up = log.level_of("peer became inactive");
        assert_eq!(given_up, Some(tracing::Level::WARN));
        while let Ok(call) = a.calls.try_recv() {
            assert!(!matches!(call, Call::Step(_)), "{call:?}");
        }
        a.transport.stop().await;
    }
}

#[tokio::test]
async fn messages_for_other_members_and_link_heartbeats_are_not_stepped() {
    let mut body = bytes::BytesMut::new();
    use portunus_rafthttp::codec::{link_heartbeat, message::encode};
    encode(&link_heartbeat(), &mut body);
    encode(&message(MessageType::MsgVote, 2, 7, 1), &mut body);
    encode(&message(MessageType::MsgVote, 2, 1, 2), &mut body);
    let address = peer_that_streams(STREAM_HEAD, body.to_vec()).await;
    let mut a = Member::start(1).await;
    a.transport.add_peer(2, &[url(address)]);
    assert_eq!(a.next_step().await.index, 2);
}

#[tokio::test]
async fn only_status_410_of_a_stream_reports_removal() {
    for head in [
        "HTTP/1.1 403 Forbidden\r\nX-Server-Version: 3.7.1\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nX-Server-Version: 3.7.1\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 412 Precondition Failed\r\nX-Server-Version: 3.7.1\r\nContent-Length: 20\r\n\r\ncluster ID mismatch\n",
        "HTTP/1.1 200 OK\r\nX-Server-Version: 2.0.0\r\n\r\n",
        "not http at all\r\n\r\n",
    ] {
        let address = peer_that_streams(head, Vec::new()).await;
        let mut a = Member::start(1).await;
        a.transport.add_peer(2, &[url(address)]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!a.transport.is_active(2), "{head}");
        assert!(a.calls.try_recv().is_err(), "{head}");
    }
}

#[tokio::test]
async fn truncated_message_is_refused() {
    let a = member().await;
    let whole = append(2, 1, 5, bytes::Bytes::from_static(b"data")).encode_to_vec();
    for cut in 1..whole.len() {
        let (status, _) = ask(a.address, "POST /raft", &good_headers(2), &whole[..cut]).await;
        assert!(matches!(status, 204 | 400 | 412), "{cut}: {status}");
    }
}
