//! Snapshot transfer: a POST whose body is the snapshot message followed by the database.
//!
//! One snapshot per peer is sent at a time. Each side holds at most a few pieces in memory.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use portunus_proto::raftpb::{Message, MessageType};
use prometheus::IntGauge;
use tokio::sync::mpsc;

use crate::body::{self, CollectError, Piece, Pieces, Progress, Upload};
use crate::codec::{self, message};
use crate::config::Config;
use crate::headers::hex;
use crate::peer::Peer;
use crate::post::{PostError, post};
use crate::raft::{OutgoingSnapshot, Raft, SnapshotRefused};
use crate::shared::Shared;
use crate::status::{Failure, chain};

/// Pieces queued between the connection and the member.
const PIECES_WAITING_MAX: usize = 8;

/// Sends the snapshots for one peer until the task is aborted.
pub(crate) async fn send_all(peer: Arc<Peer>, mut queue: mpsc::Receiver<Message>) {
    let raft = peer.shared.raft.wait().await.clone();
    while let Some(message) = queue.recv().await {
        let delivered = send(&peer, &*raft, message).await;
        raft.report_snapshot(peer.id, delivered);
    }
}

/// Increments a gauge until it is dropped.
struct Inflight(IntGauge);

impl Inflight {
    fn new(gauge: &IntGauge) -> Inflight {
        gauge.inc();
        Inflight(gauge.clone())
    }
}

impl Drop for Inflight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn index_of(message: &Message) -> u64 {
    let snapshot = message.snapshot.as_ref();
    let metadata = snapshot.and_then(|snapshot| snapshot.metadata.as_ref());
    metadata.map_or(0, |metadata| metadata.index)
}

async fn send(peer: &Peer, raft: &dyn Raft, message: Message) -> bool {
    let started = Instant::now();
    let metrics = &peer.metrics.snapshot_send;
    let _inflight = Inflight::new(&metrics.inflights);
    let peer_id = hex(peer.id);
    let OutgoingSnapshot { message, body } = match raft.open_snapshot(message).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            metrics.failures.inc();
            tracing::warn!(
                peer = peer_id,
                error = chain(&error),
                "failed to open database snapshot"
            );
            return false;
        }
    };
    let index = index_of(&message);
    tracing::info!(peer = peer_id, index, "sending database snapshot");
    let mut head = BytesMut::new();
    message::encode(&message, &mut head);
    let progress = Arc::new(Progress::new());
    let body = Upload::new(head.freeze(), body, progress.clone()).boxed_unsync();
    let upload = post(peer, "/raft/snapshot", "application/octet-stream", body);
    let result = tokio::select! {
        result = upload => result,
        () = stall(&progress, &peer.shared.config) => {
            let failure = Failure::Broken("the upload made no progress".into());
            Err(PostError::Failed(failure))
        }
    };
    let bytes = progress.get().bytes;
    match result {
        Ok(()) => {
            peer.activate();
            peer.metrics.sent_bytes.inc_by(bytes);
            metrics.success.inc();
            metrics.seconds.observe(started.elapsed().as_secs_f64());
            tracing::info!(peer = peer_id, index, bytes, "sent database snapshot");
            true
        }
        Err(error) => {
            let failure = error.failure();
            tracing::warn!(peer = peer_id, index, bytes, reason = %failure, "failed to send database snapshot");
            if error == PostError::Removed {
                peer.report_removed(raft);
            }
            metrics.failures.inc();
            peer.metrics.sent_failures.inc();
            peer.status.deactivate("sending a snapshot", &failure);
            peer.shared.reports.unreachable(peer.id);
            false
        }
    }
}

/// Returns when an upload has made no progress for its timeout.
async fn stall(progress: &Progress, config: &Config) {
    loop {
        let state = progress.get();
        let pause_max = if state.complete {
            config.snapshot_answer_timeout
        } else {
            config.snapshot_stall_timeout
        };
        let left = pause_max.saturating_sub(state.last.elapsed());
        if left.is_zero() {
            return;
        }
        // Completion changes the timeout, so it is checked every second.
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
    }
}

/// An answer to a sender: a status, and a text if it is a refusal.
pub(crate) type Answer = (StatusCode, String);

/// Receives a snapshot. The caller has checked the headers of the request.
pub(crate) async fn receive(
    shared: &Shared,
    raft: &Arc<dyn Raft>,
    body: Body,
    known_peer: impl Fn(u64) -> Option<Arc<Peer>>,
) -> Answer {
    let started = Instant::now();
    let unknown = || shared.metrics.snapshots_of_unknown();
    let mut body = pin!(body);
    let (message, rest) = match envelope(shared, body.as_mut()).await {
        Ok(envelope) => envelope,
        Err(reason) => {
            unknown().failures.inc();
            let text = format!("failed to decode raft message ({reason})");
            return (StatusCode::BAD_REQUEST, text);
        }
    };
    let peer = known_peer(message.from);
    let of_unknown = peer.is_none().then(unknown);
    let metrics = match (&peer, &of_unknown) {
        (Some(peer), _) => &peer.metrics.snapshot_receive,
        (None, Some(metrics)) => metrics,
        // Unreachable: one of the two is set.
        (None, None) => return (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    };
    let _inflight = Inflight::new(&metrics.inflights);
    if let Err(refusal) = check(shared, &**raft, &message, peer.as_deref()) {
        metrics.failures.inc();
        return refusal;
    }
    let (from, index) = (hex(message.from), index_of(&message));
    tracing::info!(peer = from, index, "receiving database snapshot");
    let sender = message.from;
    let (pieces, receiver) = mpsc::channel(PIECES_WAITING_MAX);
    // A separate task, so that a lost connection becomes an error in the body instead of
    // cancelling the member's future.
    let stream = Box::pin(Pieces::new(receiver));
    let stored = shared.runtime.spawn(raft.receive_snapshot(message, stream));
    let pause_max = shared.config.snapshot_stall_timeout;
    let bytes = forward(rest, body.as_mut(), pieces, pause_max).await;
    match &peer {
        Some(peer) => peer.metrics.received_bytes.inc_by(bytes),
        None => shared.metrics.received_bytes_of_unknown().inc_by(bytes),
    }
    let outcome = stored.await.unwrap_or_else(|_| {
        let reason = "the member is stopping".into();
        Err(SnapshotRefused::Failed { reason })
    });
    match outcome {
        Ok(()) => {
            metrics.success.inc();
            metrics.seconds.observe(started.elapsed().as_secs_f64());
            tracing::info!(
                peer = from,
                index,
                bytes,
                "received and saved database snapshot"
            );
            (StatusCode::NO_CONTENT, String::new())
        }
        Err(refusal) => {
            metrics.failures.inc();
            let reason = refusal.to_string();
            tracing::warn!(
                peer = from,
                index,
                bytes,
                reason,
                "failed to save incoming database snapshot"
            );
            let status = match refusal {
                SnapshotRefused::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
                SnapshotRefused::SenderRemoved if raft.is_removed(sender) => StatusCode::FORBIDDEN,
                _ => StatusCode::PRECONDITION_FAILED,
            };
            (status, reason)
        }
    }
}

/// Reads the message before the database; also returns the database bytes read with it.
async fn envelope(shared: &Shared, mut body: Pin<&mut Body>) -> Result<(Message, Bytes), String> {
    let config = &shared.config;
    let mut decoder = codec::message::Decoder::new(config.snapshot_envelope_bytes_max);
    loop {
        let piece = body::next_piece(body.as_mut(), Some(config.snapshot_stall_timeout)).await;
        match piece {
            Ok(Some(piece)) => decoder.feed(&piece),
            Ok(None) => return Err("unexpected EOF".into()),
            Err(error) => return Err(chain(&error)),
        }
        match decoder.next_message() {
            Ok(None) => {}
            Ok(Some(message)) => return Ok((message, decoder.into_rest())),
            Err(error) => return Err(chain(&error)),
        }
    }
}

fn check(
    shared: &Shared,
    raft: &dyn Raft,
    message: &Message,
    peer: Option<&Peer>,
) -> Result<(), Answer> {
    if message.r#type != MessageType::MsgSnap as i32 {
        return Err((StatusCode::BAD_REQUEST, "wrong raft message type".into()));
    }
    if peer.is_some_and(Peer::is_cut) {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "cut off".into()));
    }
    crate::routes::check_message(shared, raft, message)
}

/// Forwards a body to the member's task; returns the number of bytes.
async fn forward(
    rest: Bytes,
    mut body: Pin<&mut Body>,
    pieces: mpsc::Sender<Piece>,
    pause_max: Duration,
) -> u64 {
    let mut bytes = rest.len() as u64;
    if !rest.is_empty() && pieces.send(Piece::Data(rest)).await.is_err() {
        return bytes;
    }
    loop {
        let piece = match body::next_piece(body.as_mut(), Some(pause_max)).await {
            Ok(Some(data)) => Piece::Data(data),
            Ok(None) => Piece::End,
            Err(CollectError::Stalled) => Piece::Broken(io::ErrorKind::TimedOut.into()),
            Err(error) => Piece::Broken(io::Error::other(error)),
        };
        let last = !matches!(piece, Piece::Data(_));
        if let Piece::Data(data) = &piece {
            bytes += data.len() as u64;
        }
        // The receiver is dropped if the member refused the snapshot before its end.
        if pieces.send(piece).await.is_err() || last {
            return bytes;
        }
    }
}
