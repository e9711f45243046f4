//! One watch: its options and its state.

use portunus_proto::etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType};

use super::event::EventKind;
use super::hub::StreamId;
use super::range::KeyRange;

/// The delivery state of a watch.
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
    /// Everything up to the newest revision is in the stream's queue; `publish` adds new events.
    Synced,
    /// Reads history from `next` on, in sync rounds.
    CatchingUp {
        /// First revision not in the queue yet.
        next: i64,
    },
    /// Like catching up, but the stream's queue is full: the watch is idle until the client reads.
    Slow {
        /// First revision not in the queue yet.
        next: i64,
    },
    /// Starts at revision `start`, which has not been published.
    Future {
        /// First revision to deliver.
        start: i64,
    },
}

/// Kinds of events that a watch excludes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Filters {
    no_put: bool,
    no_delete: bool,
}

impl Filters {
    /// Reads the filters of a request. Unknown filters are ignored, as in etcd.
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
    /// Index in its group's `synced` list; valid while synced.
    pub(super) member_index: usize,
    /// Position in the order of sync rounds; valid while lagging. Never reused,
    /// so it also identifies the watcher a sync round was planned for.
    pub(super) ticket: u64,
    /// Newest revision at the last progress tick.
    pub(super) tick_revision: i64,
    /// Whether catch-up sent events since the last progress tick.
    pub(super) caught_up_since_tick: bool,
}

/// Public attributes of a watch, for deciding whether to cancel it.
#[derive(Debug, Clone, Copy)]
pub struct WatchInfo<'a> {
    /// Stream of the watch.
    pub stream: StreamId,
    /// Id of the watch on that stream.
    pub watch_id: i64,
    /// Watched keys.
    pub range: &'a KeyRange,
    /// Delivery state.
    pub state: WatchState,
}
