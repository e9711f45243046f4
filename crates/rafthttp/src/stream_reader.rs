//! The receiving side of a stream: dials the peer, reads its messages and redials on failure.
//!
//! One task per peer and kind. A stream without data for the read timeout is closed: the
//! writer sends heartbeats three times as often.

use std::pin::pin;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use portunus_proto::raftpb::Message;

use crate::body::{self, CollectError, RequestBody};
use crate::codec::{self, DecodeError, is_link_heartbeat};
use crate::headers::{RAFT_TO, hex};
use crate::peer::{Peer, StreamKind};
use crate::raft::Raft;
use crate::status::{Failure, chain};

/// The longest refusal that is read.
const REFUSAL_BYTES_MAX: usize = 4096;

/// Reads one kind of stream until the task is aborted.
pub(crate) async fn run(peer: Arc<Peer>, kind: StreamKind) {
    let raft = peer.shared.raft.wait().await.clone();
    loop {
        match dial(&peer, kind).await {
            Ok(stream) => {
                peer.activate();
                if let Err(failure) = read(&peer, kind, stream, &*raft).await {
                    peer.status.deactivate(kind.reading(), &failure);
                }
            }
            Err(Refusal::Removed) => {
                peer.report_removed(&*raft);
                let failure = Failure::Refused("this member was removed".into());
                peer.status.deactivate(kind.opening(), &failure);
            }
            Err(Refusal::Other(failure)) => peer.status.deactivate(kind.opening(), &failure),
        }
        tokio::time::sleep(peer.shared.config.reconnect_pause).await;
    }
}

/// Why a stream was not opened.
enum Refusal {
    Removed,
    Other(Failure),
}

async fn dial(peer: &Peer, kind: StreamKind) -> Result<Incoming, Refusal> {
    let no_address = || Refusal::Other(Failure::Broken("the peer has no usable address".into()));
    let url = peer.urls.pick().ok_or_else(no_address)?;
    let shared = &peer.shared;
    let path = kind.path(shared.identity.member_id);
    let path = PathAndQuery::try_from(path).map_err(|_| no_address())?;
    let mut request: Request<RequestBody> = Request::new(body::full(Default::default()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = url.join(&path);
    *request.headers_mut() = shared.identity.request_headers();
    if let Ok(to) = hex(peer.id).parse() {
        request.headers_mut().insert(RAFT_TO, to);
    }
    let result = open(peer, request).await;
    if result.is_err() {
        peer.urls.failed(&url);
    }
    result
}

async fn open(peer: &Peer, request: Request<RequestBody>) -> Result<Incoming, Refusal> {
    let shared = &peer.shared;
    let deadline = shared.config.dial_timeout + shared.config.stream_read_timeout;
    let answer = tokio::time::timeout(deadline, shared.stream_client.send(request))
        .await
        .map_err(|_| Refusal::Other(Failure::Broken("no answer in time".into())))?
        .map_err(|error| Refusal::Other(Failure::broken(&error)))?;
    let refused = |text: &str| Refusal::Other(Failure::Refused(text.into()));
    if !shared.identity.answer_supports_streams(answer.headers()) {
        return Err(refused("its version does not support streams"));
    }
    match answer.status() {
        StatusCode::OK => Ok(answer.into_body()),
        StatusCode::GONE => Err(Refusal::Removed),
        StatusCode::NOT_FOUND => Err(refused("this member is not in its member list yet")),
        status => {
            let text = body::collect(
                answer.into_body(),
                REFUSAL_BYTES_MAX,
                Some(shared.config.stream_read_timeout),
            );
            let text = text.await.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            Err(refused(&format!("{} ({status})", text.trim_end())))
        }
    }
}

/// The decoder for a kind of stream.
enum Decoder {
    Message(codec::message::Decoder),
    MsgApp(Box<codec::msgapp_v2::Decoder>),
}

impl Decoder {
    fn new(peer: &Peer, kind: StreamKind) -> Decoder {
        let bytes_max = peer.shared.config.message_bytes_max;
        match kind {
            StreamKind::Message => Decoder::Message(codec::message::Decoder::new(bytes_max)),
            StreamKind::MsgApp => Decoder::MsgApp(Box::new(codec::msgapp_v2::Decoder::new(
                peer.shared.identity.member_id,
                peer.id,
                bytes_max,
            ))),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        match self {
            Decoder::Message(decoder) => decoder.feed(bytes),
            Decoder::MsgApp(decoder) => decoder.feed(bytes),
        }
    }

    fn next_message(&mut self) -> Result<Option<Message>, DecodeError> {
        match self {
            Decoder::Message(decoder) => decoder.next_message(),
            Decoder::MsgApp(decoder) => decoder.next_message(),
        }
    }
}

/// Reads until the stream ends. An end by the peer is not a failure yet: the next dial may
/// succeed.
async fn read(
    peer: &Peer,
    kind: StreamKind,
    stream: Incoming,
    raft: &dyn Raft,
) -> Result<(), Failure> {
    let mut stream = pin!(stream);
    let mut decoder = Decoder::new(peer, kind);
    let pause_max = peer.shared.config.stream_read_timeout;
    loop {
        let piece = match body::next_piece(stream.as_mut(), Some(pause_max)).await {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(()),
            Err(CollectError::Stalled) => {
                return Err(Failure::Broken("no data within the read timeout".into()));
            }
            Err(error) => return Err(Failure::broken(&error)),
        };
        peer.metrics.received_bytes.inc_by(piece.len() as u64);
        decoder.feed(&piece);
        loop {
            match decoder.next_message() {
                Ok(None) => break,
                Ok(Some(message)) if is_link_heartbeat(&message) => {}
                Ok(Some(message)) => peer.receive(message, raft),
                Err(error) => {
                    peer.metrics.received_failures.inc();
                    return Err(Failure::Broken(chain(&error)));
                }
            }
        }
    }
}
