//! All watches of a member: their streams and their states.
//!
//! This file holds the streams, the watchers and their states. Client requests
//! are in `requests`; delivery is in `publish`, `sync` and `progress`. A
//! watcher's state changes only through [`Hub::set_state`], so the lists that
//! mirror it cannot disagree with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::index::RangeIndex;
use super::range::KeyRange;
use super::response_queue::{Limits, ResponseReceiver, ResponseSender, Wake};
use super::watcher::{Filters, GroupKey, WatchState, Watcher, WatcherKey};

/// The id of one client stream. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// Options of a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamOptions {
    /// Monotonic time.
    pub now: Duration,
    /// Time between automatic progress notices. The server adds jitter, so that
    /// streams opened together are not due together.
    pub progress_interval: Duration,
    /// The connection of the stream, if its streams share a limit of watches.
    pub connection: Option<ConnectionId>,
}

/// The id of one client connection. The server chooses it and never reuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);

/// Counts for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HubStats {
    /// Open streams.
    pub streams: usize,
    /// Watches of all states.
    pub watchers: usize,
    /// Watches reading history.
    pub catching_up: usize,
    /// Watches waiting for their client to read.
    pub slow: usize,
    /// Watches that start at a future revision.
    pub future: usize,
    /// Watches refused because their stream had too many.
    pub refused_per_stream: u64,
    /// Watches refused because their connection had too many.
    pub refused_per_connection: u64,
}

pub(super) struct Stream {
    pub(super) sender: Arc<ResponseSender>,
    pub(super) connection: Option<ConnectionId>,
    pub(super) watches: BTreeMap<i64, WatcherKey>,
    pub(super) next_watch_id: i64,
    /// Watches catching up or slow.
    pub(super) lagging: usize,
    pub(super) future: usize,
    /// Slow watches by ticket.
    pub(super) slow: BTreeMap<u64, WatcherKey>,
    pub(super) progress_interval: Duration,
    pub(super) next_tick: Duration,
}

/// Watchers with the same range and filters, which get the same events.
pub(super) struct WatcherGroup {
    pub(super) range: KeyRange,
    pub(super) filters: Filters,
    pub(super) watchers: usize,
    /// The synced watchers of the group, which get events from `publish`.
    pub(super) synced: Vec<SyncedWatcher>,
    /// Newest revision that had an event for the synced watchers.
    pub(super) last_event_revision: i64,
    /// Scratch of `publish`: which events of the revision match. Empty between calls.
    pub(super) matched: Vec<usize>,
}

/// A synced watcher with all that `publish` needs, so that it needs no look-ups.
pub(super) struct SyncedWatcher {
    pub(super) sender: Arc<ResponseSender>,
    pub(super) watch_id: i64,
    pub(super) watcher: WatcherKey,
    pub(super) prev_kv: bool,
    pub(super) fragment: bool,
}

/// All watches of one member. See the module text of [`crate::watch`].
pub struct Hub {
    pub(super) revision: i64,
    pub(super) limits: Limits,
    pub(super) streams: HashMap<StreamId, Stream>,
    /// Watches by connection, without connections that have none.
    pub(super) connection_watches: HashMap<ConnectionId, usize>,
    pub(super) refused_per_stream: u64,
    pub(super) refused_per_connection: u64,
    pub(super) watchers: Slab<Watcher>,
    pub(super) groups: Slab<WatcherGroup>,
    pub(super) index: RangeIndex<GroupKey>,
    /// Watches that start at a future revision, by that revision.
    pub(super) future: BTreeSet<(i64, WatcherKey)>,
    /// Watches that read history, by ticket; the oldest ticket is served first.
    pub(super) catching_up: BTreeMap<u64, WatcherKey>,
    /// Streams with slow watches.
    pub(super) starved: BTreeSet<StreamId>,
    /// When each stream's next progress tick is due.
    pub(super) ticks: BTreeSet<(Duration, StreamId)>,
    slow: usize,
    next_stream: u64,
    next_ticket: u64,
    /// Scratch of `publish`, empty between calls.
    pub(super) touched: Vec<GroupKey>,
    /// Scratch of `publish`, empty between calls.
    pub(super) refused: Vec<WatcherKey>,
}

impl Hub {
    /// A hub whose first publication will be `revision + 1`.
    #[must_use]
    pub fn new(revision: i64, limits: Limits) -> Self {
        Self {
            revision,
            limits,
            streams: HashMap::new(),
            connection_watches: HashMap::new(),
            refused_per_stream: 0,
            refused_per_connection: 0,
            watchers: Slab::new(),
            groups: Slab::new(),
            index: RangeIndex::new(),
            future: BTreeSet::new(),
            catching_up: BTreeMap::new(),
            starved: BTreeSet::new(),
            ticks: BTreeSet::new(),
            slow: 0,
            next_stream: 0,
            next_ticket: 0,
            touched: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// The newest published revision.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Counts for metrics.
    #[must_use]
    pub fn stats(&self) -> HubStats {
        HubStats {
            streams: self.streams.len(),
            watchers: self.watchers.len(),
            catching_up: self.catching_up.len(),
            slow: self.slow,
            future: self.future.len(),
            refused_per_stream: self.refused_per_stream,
            refused_per_connection: self.refused_per_connection,
        }
    }

    /// Opens a stream. Returns its id for requests and the receiver for the network task.
    pub fn open_stream(
        &mut self,
        options: StreamOptions,
        wake: Arc<dyn Wake>,
    ) -> (StreamId, ResponseReceiver) {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        let sender = ResponseSender::new(self.limits, wake);
        let next_tick = options.now.saturating_add(options.progress_interval);
        self.ticks.insert((next_tick, id));
        let stream = Stream {
            sender: Arc::clone(&sender),
            connection: options.connection,
            watches: BTreeMap::new(),
            next_watch_id: 0,
            lagging: 0,
            future: 0,
            slow: BTreeMap::new(),
            progress_interval: options.progress_interval,
            next_tick,
        };
        self.streams.insert(id, stream);
        (id, ResponseReceiver::new(sender))
    }

    /// Removes a stream and all its watches. Nothing is sent.
    pub fn close_stream(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let watchers: Vec<WatcherKey> = stream.watches.values().copied().collect();
        self.ticks.remove(&(stream.next_tick, id));
        for key in watchers {
            self.remove_watcher(key);
        }
        self.streams.remove(&id);
    }

    /// The state of one watch.
    #[must_use]
    pub fn state(&self, id: StreamId, watch_id: i64) -> Option<WatchState> {
        let key = self.streams.get(&id)?.watches.get(&watch_id)?;
        self.watchers.get(*key).map(|watcher| watcher.state)
    }

    /// Continues after a snapshot at `revision` replaced the store. Every watch resumes at its next
    /// revision; none repeats events, and no future watch starts early.
    pub fn restore(&mut self, revision: i64) {
        let before = self.revision;
        self.revision = revision;
        let all: Vec<(WatcherKey, i64)> = self
            .watchers
            .iter()
            .map(|(key, watcher)| match watcher.state {
                WatchState::Synced => (key, before + 1),
                WatchState::CatchingUp { next } | WatchState::Slow { next } => (key, next),
                WatchState::Future { start } => (key, start),
            })
            .collect();
        for (key, next) in all {
            self.update_state(key, next);
        }
    }

    /// Sets the state that follows from a watcher's next revision.
    pub(super) fn update_state(&mut self, key: WatcherKey, next: i64) {
        let Some(watcher) = self.watchers.get(key) else {
            return;
        };
        let state = if next > self.revision + 1 || watcher.start_revision > self.revision {
            WatchState::Future {
                start: next.max(watcher.start_revision),
            }
        } else if next == self.revision + 1 {
            WatchState::Synced
        } else {
            WatchState::CatchingUp { next }
        };
        self.set_state(key, state);
    }

    /// Changes the state of a watcher and the lists that mirror it; the only function that does.
    pub(super) fn set_state(&mut self, key: WatcherKey, state: WatchState) {
        self.remove_from_state_list(key);
        let Some(watcher) = self.watchers.get_mut(key) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(&watcher.stream) else {
            return;
        };
        let before = std::mem::replace(&mut watcher.state, state);
        match state {
            WatchState::Synced => {
                watcher.tick_revision = watcher.tick_revision.max(watcher.start_revision - 1);
                let Some(group) = self.groups.get_mut(watcher.group) else {
                    return;
                };
                watcher.member_index = group.synced.len();
                group.synced.push(SyncedWatcher {
                    sender: Arc::clone(&stream.sender),
                    watch_id: watcher.watch_id,
                    watcher: key,
                    prev_kv: watcher.prev_kv,
                    fragment: watcher.fragment,
                });
            }
            WatchState::Future { start } => {
                self.future.insert((start, key));
                stream.future += 1;
            }
            WatchState::CatchingUp { next } | WatchState::Slow { next } => {
                // A watch that still waits for the same revision keeps its ticket.
                if lagging_from(before) != Some(next) {
                    watcher.ticket = self.next_ticket;
                    self.next_ticket += 1;
                }
                if matches!(state, WatchState::Slow { .. }) {
                    stream.slow.insert(watcher.ticket, key);
                    self.starved.insert(watcher.stream);
                    self.slow += 1;
                } else {
                    self.catching_up.insert(watcher.ticket, key);
                }
                stream.lagging += 1;
                if stream.lagging == 1 {
                    stream.sender.set_has_lagging(true);
                }
            }
        }
    }

    /// Removes a watcher from the list of its state.
    fn remove_from_state_list(&mut self, key: WatcherKey) {
        let Some(watcher) = self.watchers.get(key) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(&watcher.stream) else {
            return;
        };
        match watcher.state {
            WatchState::Synced => {
                let place = watcher.member_index;
                let Some(group) = self.groups.get_mut(watcher.group) else {
                    return;
                };
                group.synced.swap_remove(place);
                let moved = group.synced.get(place).map(|member| member.watcher);
                if let Some(moved) = moved.and_then(|moved| self.watchers.get_mut(moved)) {
                    moved.member_index = place;
                }
            }
            WatchState::Future { start } => {
                self.future.remove(&(start, key));
                stream.future -= 1;
            }
            WatchState::CatchingUp { .. } | WatchState::Slow { .. } => {
                if matches!(watcher.state, WatchState::Slow { .. }) {
                    stream.slow.remove(&watcher.ticket);
                    if stream.slow.is_empty() {
                        self.starved.remove(&watcher.stream);
                    }
                    self.slow -= 1;
                } else {
                    self.catching_up.remove(&watcher.ticket);
                }
                stream.lagging -= 1;
                if stream.lagging == 0 {
                    stream.sender.set_has_lagging(false);
                }
            }
        }
    }

    pub(super) fn remove_watcher(&mut self, key: WatcherKey) {
        self.remove_from_state_list(key);
        let Some(watcher) = self.watchers.try_remove(key) else {
            return;
        };
        if let Some(stream) = self.streams.get_mut(&watcher.stream) {
            stream.watches.remove(&watcher.watch_id);
            if let Some(connection) = stream.connection {
                uncount(&mut self.connection_watches, connection);
            }
        }
        let Some(group) = self.groups.get_mut(watcher.group) else {
            return;
        };
        group.watchers -= 1;
        if group.watchers == 0 {
            let group = self.groups.remove(watcher.group);
            self.index.remove(&group.range, watcher.group);
        }
    }
}

/// Counts one watch less for a connection.
fn uncount(watches: &mut HashMap<ConnectionId, usize>, connection: ConnectionId) {
    if let Some(count) = watches.get_mut(&connection) {
        *count -= 1;
        if *count == 0 {
            watches.remove(&connection);
        }
    }
}

fn lagging_from(state: WatchState) -> Option<i64> {
    match state {
        WatchState::CatchingUp { next } | WatchState::Slow { next } => Some(next),
        WatchState::Synced | WatchState::Future { .. } => None,
    }
}
