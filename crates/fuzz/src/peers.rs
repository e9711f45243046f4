//! What members send to each other.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use portunus_proto::raftpb::{Message, MessageType};
use portunus_rafthttp::codec::{message, msgapp_v2};
use portunus_rafthttp::{
    BoxFuture, BoxStream, Config, LocalMember, OutgoingSnapshot, Raft, SnapshotRefused,
    StepRefused, Transport,
};
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::input::{run, take_byte, until_idle};

/// The largest message of a stream here.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
const LOCAL: u64 = 1;
const REMOTE: u64 = 2;

/// Calls `each` with pieces of the bytes, as they would arrive from a socket.
fn in_pieces(data: &[u8], piece_bytes: u8, mut each: impl FnMut(&[u8])) {
    for piece in data.chunks(usize::from(piece_bytes).max(1) * 7) {
        each(piece);
    }
}

/// Decodes a stream of messages in arbitrary pieces; what was decoded is encoded and decoded
/// without a change.
pub fn message_streams(mut data: &[u8]) {
    let piece_bytes = take_byte(&mut data);
    let mut decoder = message::Decoder::new(MESSAGE_BYTES_MAX);
    let mut messages = Vec::new();
    let mut is_broken = false;
    in_pieces(data, piece_bytes, |piece| {
        if is_broken {
            return;
        }
        decoder.feed(piece);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => {
                    is_broken = true;
                    break;
                }
            }
        }
    });
    let mut encoded = BytesMut::new();
    for message in &messages {
        message::encode(message, &mut encoded);
    }
    let mut decoder = message::Decoder::new(u64::MAX);
    decoder.feed(&encoded);
    for message in messages {
        assert_eq!(decoder.next_message().ok().flatten(), Some(message));
    }
}

/// Decodes a stream of appends in arbitrary pieces; what was decoded is encoded and decoded
/// without a change.
pub fn append_streams(mut data: &[u8]) {
    let piece_bytes = take_byte(&mut data);
    let mut decoder = msgapp_v2::Decoder::new(LOCAL, REMOTE, MESSAGE_BYTES_MAX);
    let mut messages = Vec::new();
    let mut is_broken = false;
    in_pieces(data, piece_bytes, |piece| {
        if is_broken {
            return;
        }
        decoder.feed(piece);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => {
                    is_broken = true;
                    break;
                }
            }
        }
    });
    // A sender puts only appends with entries in a row into this stream.
    let is_sent = |message: &Message| {
        let entries = message.entries.iter();
        message.r#type == MessageType::MsgApp as i32
            && message.from == REMOTE
            && message.to == LOCAL
            && entries
                .zip(1..)
                .all(|(entry, at)| message.index.checked_add(at) == Some(entry.index))
    };
    messages.retain(is_sent);
    let mut encoder = msgapp_v2::Encoder::default();
    let mut encoded = BytesMut::new();
    for message in &messages {
        encoder.encode(message, &mut encoded);
    }
    let mut decoder = msgapp_v2::Decoder::new(LOCAL, REMOTE, u64::MAX);
    decoder.feed(&encoded);
    for message in messages {
        let again = decoder.next_message().ok().flatten().expect("a message");
        assert_eq!(again.entries, message.entries);
        let position = |message: &Message| {
            (
                message.index,
                message.term,
                message.log_term,
                message.commit,
            )
        };
        assert_eq!(position(&again), position(&message));
    }
}

/// A member that takes every message and snapshot.
struct Member;

impl Raft for Member {
    fn step(&self, message: Message) -> Result<(), StepRefused> {
        match message.encoded_len() % 5 {
            0 => Err(StepRefused::new("refused")),
            _ => Ok(()),
        }
    }

    fn is_removed(&self, id: u64) -> bool {
        id == 0xdead
    }

    fn name_of(&self, _id: u64) -> Option<String> {
        None
    }

    fn report_unreachable(&self, _id: u64) {}

    fn report_snapshot(&self, _id: u64, _delivered: bool) {}

    fn open_snapshot(&self, _message: Message) -> BoxFuture<'static, io::Result<OutgoingSnapshot>> {
        Box::pin(async { Err(io::Error::other("none")) })
    }

    fn receive_snapshot(
        &self,
        _message: Message,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, Result<(), SnapshotRefused>> {
        Box::pin(async move {
            drop(body);
            Ok(())
        })
    }

    fn report_removal(&self, _by: u64) {}
}

/// Sends bytes to the HTTP server for peers, as a connection that then ends.
pub fn peer_connections(data: &[u8]) {
    // A sender announces addresses where it is answered; a test must not connect to them.
    if contains_ignoring_case(data, b"x-peerurls") {
        return;
    }
    run(async {
        let local = LocalMember {
            member_id: LOCAL,
            cluster_id: 0xc1,
            version: "3.8.0".to_owned(),
            min_cluster_version: "3.0.0".to_owned(),
            peer_urls: vec!["http://127.0.0.1:1".to_owned()],
        };
        let registry = prometheus::Registry::new();
        let runtime = tokio::runtime::Handle::current();
        let transport = Transport::new(local, Config::default(), &registry, runtime);
        let transport = transport.expect("a new registry");
        transport.attach(Arc::new(Member));
        serve(data, &transport).await;
        transport.stop().await;
    });
}

async fn serve(data: &[u8], transport: &Arc<Transport>) {
    let service = TowerToHyperService::new(transport.router());
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let server = tokio::spawn(async move {
        let connection = auto::Builder::new(TokioExecutor::new());
        let _ = connection
            .serve_connection(TokioIo::new(server), service)
            .await;
    });
    // Without the end of the connection, which would end requests in progress.
    let exchange = async {
        if client.write_all(data).await.is_ok() {
            let _ = client.read_to_end(&mut Vec::new()).await;
        }
    };
    let _ = until_idle(exchange).await;
    server.abort();
}

fn contains_ignoring_case(data: &[u8], lower: &[u8]) -> bool {
    data.windows(lower.len())
        .any(|part| part.eq_ignore_ascii_case(lower))
}
