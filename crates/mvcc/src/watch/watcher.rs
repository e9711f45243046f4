//! One watch: what it wants and how far it has come.

use portunus_proto::etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType};

use super::event::EventKind;
use super::hub::StreamId;
use super::range::KeyRange;

/// Where a watch stands between the store and its client.
///
/// ```text
///            start > now                  start <= now
///   create ──────────────▶ Future   create ──────────▶ CatchingUp ◀──────┐
///     │ start 0               │ its revision              │   ▲          │
///     ▼                       ▼ is published     all read │   │ room     │ restore
///   Synced ◀──────────────────┴───────────────────────────┘   │          │
///     │                                         queue full ▼  │          │
///     ├──────────────── queue full ───────────────────────▶ Slow         │
///     └──────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchState {
    /// Everything up to the newest revision is in the stream's queue; `publish`
    /// feeds it.
    Synced,
    /// Reads history from `next` on, in turns with the others.
    CatchingUp {
        /// First revision not in the queue yet.
        next: i64,
    },
    /// Like catching up, but the stream's queue is full: it costs nothing until
    /// the client reads.
    Slow {
        /// First revision not in the queue yet.
        next: i64,
    },
    /// Nothing before `start` concerns it, and `start` has not happened.
    Future {
        /// First revision to deliver.
        start: i64,
    },
}

/// Kinds of events a watch does not want.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Filters {
    no_put: bool,
    no_delete: bool,
}

impl Filters {
    /// Unknown filters are ignored, as etcd does.
    pub(super) fn from_request(request: &WatchCreateRequest) -> Self {
        let asked = |filter| request.filters().any(|asked| asked == filter);
        Self {
            no_put: asked(FilterType::Noput),
            no_delete: asked(FilterType::Nodelete),
        }
    }

    pub(super) fn accept(self, kind: EventKind) -> bool {
        match kind {
            EventKind::Put => !self.no_put,
            EventKind::Delete => !self.no_delete,
        }
    }
}

/// Position of a watcher in the hub.
pub(super) type WatcherKey = usize;
/// Position of a group in the hub.
pub(super) type GroupKey = usize;

pub(super) struct Watcher {
    pub(super) stream: StreamId,
    pub(super) watch_id: i64,
    pub(super) group: GroupKey,
    /// As requested; 0 means from now on.
    pub(super) start_revision: i64,
    pub(super) prev_kv: bool,
    pub(super) fragment: bool,
    pub(super) progress_notify: bool,
    pub(super) state: WatchState,
    /// Place among its group's synced members; meaningful while synced.
    pub(super) member_index: usize,
    /// Ticket for its turn; meaningful while lagging. Never reused, so it also
    /// tells whether this is still the watcher a sync round was planned for.
    pub(super) ticket: u64,
    /// Newest revision at the last progress tick.
    pub(super) tick_revision: i64,
    /// Whether catch-up sent events since the last progress tick.
    pub(super) caught_up_since_tick: bool,
}

/// A watch as callers see it, for deciding whether to end it.
#[derive(Debug, Clone, Copy)]
pub struct WatchInfo<'a> {
    /// Its stream.
    pub stream: StreamId,
    /// Its id on that stream.
    pub watch_id: i64,
    /// What it watches.
    pub range: &'a KeyRange,
    /// How far it has come.
    pub state: WatchState,
}
