//! The bounded response queue of a client stream.
//!
//! ```text
//!   publish / sync / progress ──push──▶ [ queue ] ──take──▶ network task
//!                                           │ full: refused, the watcher
//!                                           ▼ re-reads history later
//! ```
//!
//! The hub fills the queue, one network task empties it through its [`ResponseReceiver`];
//! they share only the queue's lock, never the hub's. All responses of a stream
//! pass through this one queue in order, so a progress notice cannot overtake
//! an event and the created response always comes first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::delivery::Delivery;
use super::response::{Events, Response};

/// Limits of one stream's queue and of one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Responses waiting in one stream's queue.
    pub responses_max: usize,
    /// Bytes of events waiting in one stream's queue. One response may exceed
    /// it if the queue is empty, so that a single huge revision is delivered.
    pub bytes_max: usize,
    /// Answers to requests waiting in one stream's queue; more requests are
    /// refused until the client reads.
    pub answers_max: usize,
    /// Watches on one stream.
    pub watches_max: usize,
    /// Watches on all streams of one connection.
    pub connection_watches_max: usize,
    /// A response at least this large is split for watches that request
    /// fragments. The server sets it to its request limit plus 512 KiB.
    pub fragment_bytes: usize,
    /// A catch-up response stops before the revision that would exceed this.
    pub catch_up_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            responses_max: 16 * 1024,
            bytes_max: 16 * 1024 * 1024,
            answers_max: 64,
            watches_max: 1 << 20,
            connection_watches_max: 1 << 20,
            fragment_bytes: 2 * 1024 * 1024,
            catch_up_bytes_max: 1024 * 1024,
        }
    }
}

/// Notifications of a stream's queue. `readable` is called on the publishing
/// thread, so an implementation only sets a flag or notifies a task; it never
/// blocks and never calls the hub.
pub trait Wake: Send + Sync {
    /// The queue is no longer empty: take until it is.
    fn readable(&self);

    /// The hub or a refused request waited for room on this stream, and there
    /// is room now: run a sync step and repeat the refused request.
    fn drained(&self);
}

/// One entry of the queue, with pointers to shared events.
pub(super) enum Item {
    Events {
        watch_id: i64,
        with_prev: bool,
        fragment: bool,
        delivery: Delivery,
    },
    Progress {
        watch_id: i64,
        revision: i64,
    },
    /// Answers and cancellations; rare, so they may cost an allocation.
    Answer(Box<Response>),
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Events {
                with_prev,
                delivery,
                ..
            } => delivery.bytes(*with_prev),
            Self::Progress { .. } | Self::Answer(_) => 0,
        }
    }
}

/// The hub's end of a stream's queue.
pub(super) struct ResponseSender {
    queue: Mutex<Queue>,
    wake: Arc<dyn Wake>,
    limits: Limits,
}

pub(super) struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    answers: usize,
    /// Some watcher of the stream is lagging. Then live events may fill only
    /// half of the queue: the rest is for catching up, or one busy watch would
    /// starve the others on the stream.
    has_lagging: bool,
    /// An item or a request was refused; call [`Wake::drained`] once there is room.
    room_wanted: bool,
}

/// The part of the queue that the caller may fill.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueShare {
    /// Live events: half of it while a watch of the stream lags.
    Live,
    /// Catch-up and progress: all of it.
    All,
}

/// The result of offering an item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PushResult {
    Queued,
    /// Queued into an empty queue: call [`ResponseSender::wake_reader`] once the lock is free.
    QueuedFirst,
    Full,
}

impl ResponseSender {
    pub(super) fn new(limits: Limits, wake: Arc<dyn Wake>) -> Arc<Self> {
        let queue = Queue {
            items: VecDeque::new(),
            bytes: 0,
            answers: 0,
            has_lagging: false,
            room_wanted: false,
        };
        Arc::new(Self {
            queue: Mutex::new(queue),
            wake,
            limits,
        })
    }

    /// The queue's state is consistent between statements, so a poisoned lock is usable.
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake_reader(&self) {
        self.wake.readable();
    }

    /// Offers one item and wakes the reader if needed; false if there is no room.
    pub(super) fn push(&self, item: Item, share: QueueShare) -> bool {
        let result = self.lock().push(item, share, &self.limits);
        if result == PushResult::QueuedFirst {
            self.wake_reader();
        }
        result != PushResult::Full
    }

    /// Queues an answer or a cancellation regardless of the limits: each
    /// belongs to one request or ends one watch, so their number is bounded by
    /// those.
    pub(super) fn push_response(&self, response: Response) {
        let first = {
            let mut queue = self.lock();
            queue.answers += 1;
            queue.items.push_back(Item::Answer(Box::new(response)));
            queue.items.len() == 1
        };
        if first {
            self.wake_reader();
        }
    }

    /// Whether one more request may be answered. If not, `drained` is called once it may.
    pub(super) fn has_response_room(&self) -> bool {
        let mut queue = self.lock();
        let room = queue.answers < self.limits.answers_max;
        queue.room_wanted |= !room;
        room
    }

    /// Whether the queue has room for catch-up. If not, `drained` is called once it has.
    pub(super) fn has_room(&self) -> bool {
        let mut queue = self.lock();
        let room =
            queue.items.len() < self.limits.responses_max && queue.bytes < self.limits.bytes_max;
        queue.room_wanted |= !room;
        room
    }

    pub(super) fn set_has_lagging(&self, has_lagging: bool) {
        self.lock().has_lagging = has_lagging;
    }
}

impl Queue {
    pub(super) fn push(&mut self, item: Item, share: QueueShare, limits: &Limits) -> PushResult {
        let halved = share == QueueShare::Live && self.has_lagging;
        let divisor = if halved { 2 } else { 1 };
        let bytes = item.bytes();
        let was_empty = self.items.is_empty();
        let fits = self.items.len() < limits.responses_max / divisor
            && self.bytes.saturating_add(bytes) <= limits.bytes_max / divisor;
        if !was_empty && !fits {
            self.room_wanted = true;
            return PushResult::Full;
        }
        self.bytes += bytes;
        self.items.push_back(item);
        if was_empty {
            PushResult::QueuedFirst
        } else {
            PushResult::Queued
        }
    }

    /// Takes the oldest item. Also returns whether to call [`Wake::drained`].
    fn pop(&mut self, limits: &Limits) -> (Option<Item>, bool) {
        let item = self.items.pop_front();
        if let Some(item) = &item {
            self.bytes = self.bytes.saturating_sub(item.bytes());
            if matches!(item, Item::Answer(_)) {
                self.answers = self.answers.saturating_sub(1);
            }
        }
        if self.items.is_empty() && self.items.capacity() > KEPT_CAPACITY_MAX {
            // Free the memory of a burst: many streams are idle.
            self.items = VecDeque::new();
        }
        let has_room = self.items.len() <= limits.responses_max / 2
            && self.bytes <= limits.bytes_max / 2
            && self.answers <= limits.answers_max / 2;
        let notify_drained = has_room && self.room_wanted;
        self.room_wanted &= !notify_drained;
        (item, notify_drained)
    }
}

/// Queue entries an idle stream may keep allocated.
const KEPT_CAPACITY_MAX: usize = 1024;

/// The network task's end of a stream's queue. One task owns it.
pub struct ResponseReceiver {
    sender: Arc<ResponseSender>,
    /// Rest of a response that is being sent in fragments.
    unsent: Option<Response>,
}

/// Responses and bytes in a stream's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// Responses, of every kind.
    pub responses: usize,
    /// Estimated wire bytes of their events.
    pub bytes: usize,
}

impl ResponseReceiver {
    pub(super) fn new(sender: Arc<ResponseSender>) -> Self {
        Self {
            sender,
            unsent: None,
        }
    }

    /// The next response to send; `None` until [`Wake::readable`] is called again.
    #[must_use]
    pub fn take(&mut self) -> Option<Response> {
        let response = match self.unsent.take() {
            Some(rest) => rest,
            None => self.next()?,
        };
        let (head, rest) = split_response(response, self.sender.limits.fragment_bytes);
        self.unsent = rest;
        Some(head)
    }

    /// Returns the queue length, without a response of which a fragment was already taken.
    #[must_use]
    pub fn queued(&self) -> Queued {
        let queue = self.sender.lock();
        Queued {
            responses: queue.items.len(),
            bytes: queue.bytes,
        }
    }

    fn next(&self) -> Option<Response> {
        let (item, notify_drained) = self.sender.lock().pop(&self.sender.limits);
        if notify_drained {
            self.sender.wake.drained();
        }
        Some(match item? {
            Item::Answer(response) => *response,
            Item::Progress { watch_id, revision } => Response::empty(watch_id, revision),
            Item::Events {
                watch_id,
                with_prev,
                fragment,
                delivery,
            } => {
                let mut response = Response::empty(watch_id, delivery.header_revision());
                response.fragment = fragment;
                let part = 0..delivery.len();
                response.events = Some(Events {
                    delivery,
                    with_prev,
                    part,
                });
                response
            }
        })
    }
}

/// Upper bound of everything in a response that is not an event.
const HEAD_BYTES_MAX: usize = 96;

/// Splits a response that may be fragmented (its `fragment` field is set) into
/// what fits and the rest; the first part holds at least one event. Only a part
/// that is not the last keeps the field set.
fn split_response(mut response: Response, fragment_bytes: usize) -> (Response, Option<Response>) {
    if !response.fragment {
        return (response, None);
    }
    response.fragment = false;
    let Some(events) = &mut response.events else {
        return (response, None);
    };
    let mut bytes = HEAD_BYTES_MAX;
    let fitting = events.frames().take_while(|frame| {
        bytes += frame.len();
        bytes < fragment_bytes
    });
    let end = events.part.start + fitting.count().max(1);
    if end >= events.part.end {
        return (response, None);
    }
    let rest = Events {
        delivery: events.delivery.clone(),
        with_prev: events.with_prev,
        part: end..events.part.end,
    };
    events.part.end = end;
    response.fragment = true;
    let rest = Response {
        fragment: true,
        events: Some(rest),
        ..Response::empty(response.watch_id, response.revision)
    };
    (response, Some(rest))
}
