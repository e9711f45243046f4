//! The sending half of a stream: a queue, and the body of an accepted GET that empties it.
//!
//! ```text
//!   send ──▶ push ──▶ queue ◀── WriterBody, polled by the connection when it can write
//! ```
//!
//! No task stands between the two, so a message costs one wake-up, and what queued while
//! the connection was busy leaves in one piece. At most one body is attached; a newer one
//! takes the queue over and the older one ends.

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

/// A piece of a body is sent when it has reached this size, even if more is queued.
const PIECE_BYTES: usize = 1 << 20;
/// What an entry or a message takes besides its payload, roughly.
const OVERHEAD_BYTES: usize = 64;

/// What became of a message. One that has to go another way is handed back.
#[derive(Debug)]
#[must_use]
pub(crate) enum Pushed {
    /// It is in the queue.
    Queued,
    /// There is no stream.
    Detached(Message),
    /// The stream was given up just now: its peer took nothing for too long.
    Stalled(Message),
    /// The queue is full.
    Full,
}

/// What the body of a stream tells about its end.
pub(crate) trait OnLoss: Send + Sync {
    /// The connection went away while it was in use.
    fn lost(&self, kind: StreamKind);
    /// Bytes were handed to the connection.
    fn sent(&self, bytes: usize);
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
    /// Counts attachments; the newest one is in force if `attached`.
    attachment: u64,
    attached: bool,
    stopped: bool,
    queue: VecDeque<Message>,
    queued_bytes: usize,
    /// Since when something waits that the connection has not asked for.
    waiting_since: Option<Instant>,
    waker: Option<Waker>,
}

impl State {
    /// Takes the queue away from whoever has it. Gives the one to be woken.
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

/// About what a message takes in memory and on the wire; exact sizes cost more than they
/// are worth here.
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

    /// Queues a message if there is a stream. Never waits.
    pub fn push(&self, message: Message) -> Pushed {
        let mut state = lock(&self.state);
        if !state.attached {
            return Pushed::Detached(message);
        }
        let stalled = |since: Instant| since.elapsed() > self.write_timeout;
        if state.waiting_since.is_some_and(stalled) {
            let waker = state.detach();
            drop(state);
            wake(waker);
            return Pushed::Stalled(message);
        }
        let bytes = approximate_bytes(&message);
        let full = state.queue.len() >= self.queue_max
            || state.queued_bytes.saturating_add(bytes) > self.queue_bytes_max;
        if full && !state.queue.is_empty() {
            return Pushed::Full;
        }
        state.queued_bytes += bytes;
        state.queue.push_back(message);
        if state.waiting_since.is_none() {
            state.waiting_since = Some(Instant::now());
        }
        let waker = state.waker.take();
        drop(state);
        wake(waker);
        Pushed::Queued
    }

    /// Attaches a new connection in the place of the one before.
    pub fn attach(self: &Arc<Self>, on_loss: Arc<dyn OnLoss>) -> WriterBody {
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
            on_loss,
        }
    }

    /// Ends the connection in use and every later one.
    pub fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopped = true;
        let waker = state.detach();
        drop(state);
        wake(waker);
    }
}

/// The encoder of a stream's kind.
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
    on_loss: Arc<dyn OnLoss>,
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
            // Asked again at once, so that it wakes this task next time.
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
        this.on_loss.sent(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece.freeze()))))
    }
}

impl Drop for WriterBody {
    fn drop(&mut self) {
        let mut state = lock(&self.writer.state);
        if state.attached && state.attachment == self.attachment {
            state.detach();
            drop(state);
            self.on_loss.lost(self.writer.kind);
        }
    }
}
