//! The responses that a consumer has not taken yet, limited in bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use portunus_proto::etcdserverpb::WatchResponse;
use portunus_proto::mvccpb::KeyValue;
use tokio::sync::Notify;

use super::end::WatchEnd;

/// What a key-value pair takes beside its key and value.
const PAIR_OVERHEAD_BYTES: usize = 64;

/// The buffer of one watch.
#[derive(Debug)]
pub(super) struct Buffer {
    inner: Mutex<Inner>,
    /// The task of the stream waits for space; the consumer signals it.
    space: Notify,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    responses: VecDeque<(usize, WatchResponse)>,
    bytes: usize,
    /// Whether the watch waits at the server's side until the buffer is empty.
    is_paused: bool,
    end: Option<WatchEnd>,
    consumer: Option<Waker>,
}

/// What the consumer takes.
#[derive(Debug)]
pub(super) enum Taken {
    /// A response; `resume` tells to request a paused watch again.
    Response {
        /// The response.
        response: WatchResponse,
        /// Whether the watch was paused and the buffer is empty now.
        resume: bool,
    },
    /// The watch ended.
    End(WatchEnd),
}

impl Buffer {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            inner: Mutex::default(),
            space: Notify::new(),
            bytes_max,
        }
    }

    /// Adds a response, or returns it if there is no space. An empty buffer takes any response.
    pub(super) fn push(&self, response: WatchResponse) -> Result<(), WatchResponse> {
        let bytes = size(&response);
        let mut inner = self.lock();
        if !inner.responses.is_empty() && inner.bytes + bytes > self.bytes_max {
            return Err(response);
        }
        inner.bytes += bytes;
        inner.responses.push_back((bytes, response));
        wake(inner);
        Ok(())
    }

    /// Waits until the consumer has taken something.
    pub(super) async fn space(&self) {
        self.space.notified().await;
    }

    /// Marks the watch as paused, unless the buffer is empty. Returns whether it did.
    pub(super) fn pause(&self) -> bool {
        let mut inner = self.lock();
        inner.is_paused = !inner.responses.is_empty();
        inner.is_paused
    }

    /// Ends the watch after the responses in the buffer.
    pub(super) fn end(&self, end: WatchEnd) {
        let mut inner = self.lock();
        inner.end.get_or_insert(end);
        wake(inner);
    }

    /// Takes the next response or the end.
    pub(super) fn poll_take(&self, context: &mut Context<'_>) -> Poll<Taken> {
        let mut inner = self.lock();
        let Some((bytes, response)) = inner.responses.pop_front() else {
            if let Some(end) = inner.end.take() {
                return Poll::Ready(Taken::End(end));
            }
            inner.consumer = Some(context.waker().clone());
            return Poll::Pending;
        };
        inner.bytes -= bytes;
        let resume = inner.responses.is_empty() && std::mem::take(&mut inner.is_paused);
        drop(inner);
        self.space.notify_one();
        Poll::Ready(Taken::Response { response, resume })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(mut inner: MutexGuard<'_, Inner>) {
    let consumer = inner.consumer.take();
    drop(inner);
    if let Some(consumer) = consumer {
        consumer.wake();
    }
}

fn size(response: &WatchResponse) -> usize {
    let pair = |kv: &KeyValue| kv.key.len() + kv.value.len() + PAIR_OVERHEAD_BYTES;
    let pairs = |events: &portunus_proto::mvccpb::Event| {
        events.kv.as_ref().map_or(0, pair) + events.prev_kv.as_ref().map_or(0, pair)
    };
    PAIR_OVERHEAD_BYTES + response.events.iter().map(pairs).sum::<usize>()
}
