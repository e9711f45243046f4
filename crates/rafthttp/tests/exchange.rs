//! Two members exchange messages, lose their connections and reconnect.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use common::log::Log;
use common::{
    Call, Member, append, good_headers, local, message, quick, raw_answer, raw_request, until, url,
};
use http::StatusCode;
use portunus_proto::raftpb::MessageType;
use portunus_rafthttp::{Config, Transport};
use tokio::net::TcpListener;

async fn pair() -> (Member, Member) {
    let (a, b) = (Member::start(1).await, Member::start(2).await);
    a.add_peer(&b);
    b.add_peer(&a);
    a.connected(&b).await;
    (a, b)
}

fn without_streams(router: Router) -> Router {
    let refuse = any(|| async { StatusCode::INTERNAL_SERVER_ERROR });
    Router::new()
        .route("/raft/stream/{*rest}", refuse)
        .fallback_service(router)
}

fn without_posts(router: Router) -> Router {
    let refuse = any(|| async { StatusCode::INTERNAL_SERVER_ERROR });
    Router::new()
        .route("/raft", refuse)
        .fallback_service(router)
}

#[tokio::test]
async fn both_streams_deliver_messages_in_order() {
    let a = Member::start_with(1, quick(), without_posts).await;
    let mut b = Member::start_with(2, quick(), without_posts).await;
    a.add_peer(&b);
    b.add_peer(&a);
    a.connected(&b).await;
    // One message of each kind until both streams are open.
    const FIRST_INDEX: u64 = 1_000_000;
    let mut index = 0;
    let mut arrived = (false, false);
    while arrived != (true, true) {
        index += 1;
        a.transport.send(vec![
            append(1, 2, index, Bytes::from_static(b"x")),
            message(MessageType::MsgHeartbeat, 1, 2, index),
        ]);
        tokio::time::sleep(Duration::from_millis(20)).await;
        while let Ok(call) = b.calls.try_recv() {
            match call {
                Call::Step(message) if !message.entries.is_empty() => arrived.0 = true,
                Call::Step(_) => arrived.1 = true,
                _ => {}
            }
        }
    }
    // Only messages from here on are checked.
    for batch in 0..20 {
        let mut messages = Vec::new();
        for number in batch * 100..batch * 100 + 100 {
            let index = FIRST_INDEX + number;
            messages.push(append(1, 2, index, Bytes::from(vec![7; 300])));
            messages.push(message(MessageType::MsgHeartbeat, 1, 2, index));
        }
        a.transport.send(messages);
    }
    let (mut appends, mut heartbeats) = (FIRST_INDEX, FIRST_INDEX);
    while appends < FIRST_INDEX + 2000 || heartbeats < FIRST_INDEX + 2000 {
        let message = b.next_step().await;
        if message.index < FIRST_INDEX {
            continue;
        }
        if message.r#type == MessageType::MsgApp as i32 {
            assert_eq!(message, append(1, 2, appends, Bytes::from(vec![7; 300])));
            appends += 1;
        } else {
            assert_eq!(message.index, heartbeats);
            heartbeats += 1;
        }
    }
}

#[tokio::test]
async fn message_of_20_mib_is_delivered() {
    let (a, mut b) = pair().await;
    let data = Bytes::from(vec![5; 20 << 20]);
    a.transport.send(vec![append(1, 2, 8, data.clone())]);
    let arrived = b.next_step().await;
    assert_eq!(arrived.entries[0].data, data);
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 9)]);
    assert_eq!(b.next_step().await.index, 9);
}

#[tokio::test]
async fn messages_without_streams_are_posted() {
    let a = Member::start_with(1, quick(), without_streams).await;
    let mut b = Member::start(2).await;
    a.add_peer(&b);
    b.add_peer(&a);
    let sent = [
        append(1, 2, 4, Bytes::from_static(b"x")),
        message(MessageType::MsgVote, 1, 2, 5),
    ];
    a.transport.send(sent.to_vec());
    let mut arrived = [b.next_step().await, b.next_step().await];
    arrived.sort_by_key(|message| message.index);
    assert_eq!(arrived, sent);
    until(|| a.transport.is_active(2)).await;
}

#[tokio::test]
async fn restarted_member_is_reconnected() {
    let (mut a, b) = pair().await;
    let since = a.transport.active_since(2).unwrap();
    let address = b.crash().await;
    until(|| !a.transport.is_active(2)).await;
    assert_eq!(a.metric("etcd_network_disconnected_peers_total", "2"), 1.0);
    a.next(|call| matches!(call, Call::Unreachable(2)).then_some(()))
        .await;

    let listener = TcpListener::bind(address).await.unwrap();
    let mut b = Member::start_at(2, quick(), listener, |router| router);
    b.add_peer(&a);
    a.connected(&b).await;
    until(|| a.transport.active_since(2).is_some_and(|now| now > since)).await;
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 7)]);
    assert_eq!(b.next_step().await.index, 7);
    assert_eq!(a.metric("etcd_network_active_peers", "2"), 1.0);
}

/// Opens a stream as member 9 and never reads it.
async fn stalled_reader(a: &Member, kind: &str) -> tokio::net::TcpStream {
    a.transport.add_peer(9, &["http://127.0.0.1:1".to_owned()]);
    let mut headers = good_headers(9);
    headers.push(("X-Raft-To".into(), "1".into()));
    let path = format!("GET /raft/stream/{kind}/9");
    let mut stream = raw_request(a.address, &path, &headers, b"").await;
    assert_eq!(raw_answer(&mut stream).await.0, 200);
    stream
}

/// A peer that does not listen, and one that closes its connection, as both do while they restart.
#[tokio::test]
async fn disconnects_are_logged_as_info() {
    let (log, _guard) = Log::record();
    let config = Config {
        stream_read_timeout: common::TIMEOUT * 2,
        probe_interval: common::TIMEOUT * 2,
        ..quick()
    };
    let a = Member::start_with(1, config, |router| router).await;
    a.transport.add_peer(8, &["http://127.0.0.1:1".to_owned()]);
    until(|| log.level_of("peer not reached yet").is_some()).await;
    let refused = log.level_of("connection refused");
    assert_eq!(refused, Some(tracing::Level::INFO));

    // It accepts and does not answer, so only the stream that it opened decides about it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    a.transport.add_peer(9, &[url(address)]);
    let stream = stalled_reader(&a, "message").await;
    assert!(a.transport.is_active(9));
    drop(stream);
    until(|| !a.transport.is_active(9)).await;
    let closed = log.level_of("peer became inactive");
    assert_eq!(closed, Some(tracing::Level::INFO));
}

#[tokio::test]
async fn full_queue_drops_and_reports_messages_and_stays_bounded() {
    let config = Config {
        stream_queue_max: 100,
        heartbeat: Duration::from_secs(60),
        stream_write_timeout: Duration::from_secs(600),
        ..quick()
    };
    let mut a = Member::start_with(1, config, |router| router).await;
    let _stalled = stalled_reader(&a, "msgapp").await;
    struct Payload(#[allow(dead_code)] Arc<()>, Vec<u8>);
    impl AsRef<[u8]> for Payload {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    let alive = Arc::new(());
    let send = |count: u64| {
        for index in 0..count {
            let payload = Payload(alive.clone(), vec![1; 64 << 10]);
            a.transport
                .send(vec![append(1, 9, index, Bytes::from_owner(payload))]);
        }
    };
    // More than the socket buffers hold.
    for _ in 0..20 {
        send(100);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    a.next(|call| matches!(call, Call::Unreachable(9)).then_some(()))
        .await;
    assert!(a.metric("etcd_network_peer_sent_failures_total", "9") > 0.0);
    // The queue plus the messages of one piece in flight.
    let alive = Arc::strong_count(&alive) - 1;
    assert!(alive <= 120, "{alive} messages are kept");
}

#[tokio::test]
async fn stalled_stream_is_replaced_by_posts() {
    let config = Config {
        stream_write_timeout: Duration::from_millis(200),
        ..quick()
    };
    let a = Member::start_with(1, config, |router| router).await;
    let mut b = Member::start(9).await;
    let _stalled = stalled_reader(&a, "message").await;
    a.transport.update_peer(9, &[url(b.address)]);
    let arrived = async {
        loop {
            let big = append(1, 9, 3, Bytes::from(vec![1; 1 << 20]));
            a.transport.send(vec![big]);
            tokio::select! {
                message = b.next_step() => return message,
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    };
    let arrived = tokio::time::timeout(common::TIMEOUT, arrived).await;
    assert_eq!(arrived.unwrap().index, 3);
}

#[tokio::test]
async fn cut_peer_exchanges_no_messages_until_mended() {
    let (a, mut b) = pair().await;
    a.transport.cut(2);
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 1)]);
    b.transport.cut(1);
    a.transport.mend(2);
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 2)]);
    until(|| b.metric("etcd_network_peer_received_failures_total", "1") >= 1.0).await;
    b.transport.mend(1);
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 3)]);
    assert_eq!(b.next_step().await.index, 3);
}

#[tokio::test]
async fn unknown_sender_of_the_cluster_gets_responses_by_post() {
    let (mut a, mut b) = (Member::start(1).await, Member::start(2).await);
    // Only one has the other as a peer, as before a new member has applied the log.
    a.add_peer(&b);
    a.transport
        .send(vec![message(MessageType::MsgHeartbeat, 1, 2, 1)]);
    assert_eq!(b.next_step().await.index, 1);
    b.transport
        .send(vec![message(MessageType::MsgHeartbeatResp, 2, 1, 2)]);
    assert_eq!(a.next_step().await.index, 2);
    assert!(!b.transport.is_active(1), "a remote is not a peer");
    // Once it is a peer, the streams open.
    b.add_peer(&a);
    a.connected(&b).await;
}

#[tokio::test]
async fn transport_without_attached_member_answers_503() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Handle::current();
    let registry = prometheus::Registry::new();
    let transport = Transport::new(local(1), quick(), &registry, runtime).unwrap();
    let server = common::serve(listener, transport.router());
    let mut b = Member::start(2).await;
    transport.add_peer(2, &[url(b.address)]);
    transport.send(vec![message(MessageType::MsgVote, 1, 2, 1)]);
    for path in ["GET /raft/stream/message/2", "POST /raft"] {
        let (status, text) = common::ask(address, path, &good_headers(2), b"").await;
        assert_eq!(status, 503, "{text}");
    }
    assert!(b.calls.try_recv().is_err());
    server.abort();
}

#[tokio::test]
async fn removed_member_learns_of_its_removal_by_streams_and_posts() {
    let (mut a, b) = (Member::start(1).await, Member::start(2).await);
    b.recorder.removed.lock().unwrap().insert(1);
    a.add_peer(&b);
    let by = a
        .next(|call| match call {
            Call::Removed { by } => Some(*by),
            _ => None,
        })
        .await;
    assert_eq!(by, 2);

    let mut c = Member::start_with(3, quick(), without_streams).await;
    c.add_peer(&b);
    b.recorder.removed.lock().unwrap().insert(3);
    c.transport
        .send(vec![message(MessageType::MsgVote, 3, 2, 1)]);
    c.next(|call| matches!(call, Call::Removed { by: 2 }).then_some(()))
        .await;
}

#[tokio::test]
async fn peer_is_reached_at_its_working_address() {
    let (a, mut b) = (Member::start(1).await, Member::start(2).await);
    let urls = [
        "http://127.0.0.1:1".to_owned(),
        "https://127.0.0.1:2".to_owned(),
        "no address".to_owned(),
        url(b.address),
    ];
    a.transport.add_peer(2, &urls);
    b.add_peer(&a);
    a.connected(&b).await;
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 1)]);
    assert_eq!(b.next_step().await.index, 1);
}

#[tokio::test]
async fn peer_is_reached_at_its_updated_address() {
    let (a, mut b) = (Member::start(1).await, Member::start(2).await);
    a.transport.add_peer(2, &["http://127.0.0.1:1".to_owned()]);
    a.transport.update_peer(2, &[url(b.address)]);
    b.add_peer(&a);
    a.connected(&b).await;
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 1)]);
    assert_eq!(b.next_step().await.index, 1);
}

#[tokio::test]
async fn streams_of_a_removed_peer_end() {
    let (a, b) = pair().await;
    a.transport.remove_peer(2);
    until(|| !b.transport.is_active(1)).await;
    assert!(!a.transport.is_active(2));
    assert_eq!(a.metric("etcd_network_active_peers", "2"), 0.0);
    a.transport.remove_all_peers();
    b.transport.stop().await;
    b.add_peer(&a);
    assert!(
        !b.transport.is_active(1),
        "a stopped transport ignores new peers"
    );
}

#[tokio::test]
async fn refused_message_is_dropped_and_streams_stay_open() {
    let (a, mut b) = pair().await;
    *b.recorder.refuse_steps.lock().unwrap() = true;
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 1)]);
    until(|| b.metric("etcd_network_peer_received_failures_total", "1") >= 1.0).await;
    *b.recorder.refuse_steps.lock().unwrap() = false;
    a.transport
        .send(vec![message(MessageType::MsgVote, 1, 2, 2)]);
    assert_eq!(b.next_step().await.index, 2);
    assert_eq!(a.metric("etcd_network_disconnected_peers_total", "2"), 0.0);
}

#[tokio::test]
async fn idle_stream_stays_open_and_silent_stream_is_closed() {
    let config = Config {
        stream_read_timeout: Duration::from_millis(600),
        ..quick()
    };
    let a = Member::start_with(1, config.clone(), |router| router).await;
    let b = Member::start_with(2, config.clone(), |router| router).await;
    a.add_peer(&b);
    b.add_peer(&a);
    a.connected(&b).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(a.metric("etcd_network_disconnected_peers_total", "2"), 0.0);

    let silent = Config {
        heartbeat: Duration::from_secs(600),
        ..config
    };
    let c = Member::start_with(3, silent, |router| router).await;
    a.add_peer(&c);
    c.add_peer(&a);
    until(|| a.metric("etcd_network_disconnected_peers_total", "3") >= 1.0).await;
}

#[tokio::test]
async fn round_trips_are_measured() {
    let (a, _b) = pair().await;
    until(|| a.metric("etcd_network_peer_round_trip_time_seconds", "2") >= 2.0).await;
}
