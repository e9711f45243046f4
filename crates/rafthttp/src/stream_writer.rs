//! The sending side of a stream: a queue, and the body of an accepted GET that drains it.
//!
//! ```text
//!   send ──▶ push ──▶ queue ◀── WriterBody, polled by the connection when it can write
//! ```
//!
//! There is no task between the two: a message costs one wake-up, and messages queued while
//! the connection was busy are sent in one piece. At most one body is attached; a newer body
//! replaces it and the older one ends.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use portunus_proto::raftpb::Message;
use tokio::time::{Interval, MissedTickBehavior};

use crate::codec::{self, link_heartbeat};
use crate::config::Config;
use crate::peer::StreamKind;
use crate::sync::lock;

/// A piece is sent once it has this size, even if more messages are queued.
const PIECE_BYTES: usize = 1 << 20;
/// The approximate size of an entry or message besides its payload.
const OVERHEAD_BYTES: usize = 64;

/// The result of queueing a message. A message that another channel must send is returned.
#[derive(Debug)]
#[must_use]
pub(crate) enum PushResult {
    /// The message is queued.
    Queued,
    /// No connection is attached.
    Detached(Message),
    /// The connection took nothing for the write timeout and was detached by this call.
    Stalled(Message),
    /// The queue is full.
    Full,
}

/// Callbacks of a stream's body.
pub(crate) trait StreamObserver: Send + Sync {
    /// The connection was lost while attached.
    fn stream_lost(&self, kind: StreamKind);
    /// The connection took this many bytes.
    fn bytes_sent(&self, bytes: usize);
}

pub(crate) struct StreamWriter {
    kind: StreamKind,
    queue_max: usize,
    queue_bytes_max: usize,
    write_timeout: Duration,
    heartbeat: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of attachments so far; the newest one is valid if `attached`.
    attachment: u64,
    attached: bool,
    stopped: bool,
    queue: VecDeque<Message>,
    queued_bytes: usize,
    /// Since when the connection has not polled for the queued messages.
    waiting_since: Option<Instant>,
    waker: Option<Waker>,
}

impl State {
    /// Detaches the body and clears the queue. Returns the waker of the detached body.
    fn detach(&mut self) -> Option<Waker> {
        self.attached = false;
        self.queue = VecDeque::new();
        self.queued_bytes = 0;
        self.waiting_since = None;
        self.waker.take()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Returns the approximate size of a message; the exact one is expensive to compute.
fn approximate_bytes(message: &Message) -> usize {
    let entries = message.entries.iter().map(|entry| entry.data.len());
    entries.sum::<usize>() + message.context.len() + (1 + message.entries.len()) * OVERHEAD_BYTES
}

impl StreamWriter {
    pub fn new(kind: StreamKind, config: &Config) -> StreamWriter {
        StreamWriter {
            kind,
            queue_max: config.stream_queue_max,
            queue_bytes_max: config.stream_queue_bytes_max,
            write_timeout: config.stream_write_timeout,
            heartbeat: config.heartbeat,
            state: Mutex::default(),
        }
    }

    /// Queues a message if a connection is attached. Never waits.
    pub fn push(&self, message: Message) -> PushResult {
        let mut state = lock(&self.state);
        if !state.attached {
            return PushResult::Detached(message);
        }
        let stalled = |since: Instant| since.elapsed() > self.write_timeout;
        if state.waiting_since.is_some_and(stalled) {
            let waker = state.detach();
            drop(state);
            wake(waker);
            return PushResult::Stalled(message);
        }
        let bytes = approximate_bytes(&message);
        let full = state.queue.len() >= self.queue_max
            || state.queued_bytes.saturating_add(bytes) > self.queue_bytes_max;
        if full && !state.queue.is_empty() {
            return PushResult::Full;
        }
        state.queued_bytes += bytes;
        state.queue.push_back(message);
        if state.waiting_since.is_none() {
            state.waiting_since = Some(Instant::now());
        }
        let waker = state.waker.take();
        drop(state);
        wake(waker);
        PushResult::Queued
    }

    /// Attaches a new connection; replaces the attached one.
    pub fn attach(self: &Arc<Self>, observer: Arc<dyn StreamObserver>) -> WriterBody {
        let mut state = lock(&self.state);
        let waker = state.detach();
        state.attachment += 1;
        state.attached = !state.stopped;
        let attachment = state.attachment;
        drop(state);
        wake(waker);
        let start = tokio::time::Instant::now() + self.heartbeat;
        let mut heartbeat = tokio::time::interval_at(start, self.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        WriterBody {
            writer: self.clone(),
            attachment,
            encoder: Encoder::new(self.kind),
            heartbeat,
            observer,
        }
    }

    /// Ends the attached connection; later ones end at once.
    pub fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopped = true;
        let waker = state.detach();
        drop(state);
        wake(waker);
    }
}

/// The encoder for a kind of stream.
enum Encoder {
    Message,
    MsgApp(codec::msgapp_v2::Encoder),
}

impl Encoder {
    fn new(kind: StreamKind) -> Encoder {
        match kind {
            StreamKind::Message => Encoder::Message,
            StreamKind::MsgApp => Encoder::MsgApp(codec::msgapp_v2::Encoder::default()),
        }
    }

    fn encode(&mut self, message: &Message, to: &mut BytesMut) {
        match self {
            Encoder::Message => codec::message::encode(message, to),
            Encoder::MsgApp(encoder) => encoder.encode(message, to),
        }
    }
}

/// The body of one stream.
pub(crate) struct WriterBody {
    writer: Arc<StreamWriter>,
    attachment: u64,
    encoder: Encoder,
    heartbeat: Interval,
    observer: Arc<dyn StreamObserver>,
}

impl Body for WriterBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let mut piece = BytesMut::new();
        if this.heartbeat.poll_tick(context).is_ready() {
            this.encoder.encode(&link_heartbeat(), &mut piece);
            // Polled again to register the waker for the next tick.
            let _ = this.heartbeat.poll_tick(context);
        }
        let mut state = lock(&this.writer.state);
        if !state.attached || state.attachment != this.attachment {
            return Poll::Ready(None);
        }
        let mut batch = VecDeque::new();
        if state.queued_bytes <= PIECE_BYTES {
            state.queued_bytes = 0;
            std::mem::swap(&mut batch, &mut state.queue);
        } else {
            let mut batch_bytes = 0;
            while batch_bytes < PIECE_BYTES
                && let Some(message) = state.queue.pop_front()
            {
                let bytes = approximate_bytes(&message);
                batch_bytes += bytes;
                state.queued_bytes = state.queued_bytes.saturating_sub(bytes);
                batch.push_back(message);
            }
        }
        state.waiting_since = (!state.queue.is_empty()).then(Instant::now);
        if batch.is_empty() && piece.is_empty() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        for message in &batch {
            this.encoder.encode(message, &mut piece);
        }
        this.observer.bytes_sent(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece.freeze()))))
    }
}

impl Drop for WriterBody {
    fn drop(&mut self) {
        let mut state = lock(&self.writer.state);
        if state.attached && state.attachment == self.attachment {
            state.detach();
            drop(state);
            self.observer.stream_lost(self.writer.kind);
        }
    }
}
