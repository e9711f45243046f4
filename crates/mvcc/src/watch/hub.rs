//! All watches of a member: their streams, their states, their requests.
//!
//! This file keeps the books: who exists, and in which state. Feeding them is
//! in `publish`, `sync` and `progress`. A watcher's state changes only through
//! [`Hub::set_state`], so the lists that mirror it cannot disagree with it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WatchCreateRequest;
use slab::Slab;
use thiserror::Error;

use super::index::RangeIndex;
use super::outlet::{Inlet, Limits, Outlet, Wake};
use super::range::KeyRange;
use super::response::Response;
use super::watcher::{Filters, GroupKey, WatchInfo, WatchState, Watcher, WatcherKey};

/// Sent when a client names a watch id that its stream already uses.
const DUPLICATE_ID_REASON: &str = "mvcc: duplicate watch ID provided on the WatchStream";
/// Sent when a requested range can hold no key.
const EMPTY_RANGE_REASON: &str = "mvcc: watcher range is empty";

/// One client stream. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// What a stream is opened with.
#[derive(Debug, Clone, Copy)]
pub struct StreamOptions {
    /// Monotonic time.
    pub now: Duration,
    /// Between automatic progress notices. The server adds its jitter, so that
    /// streams opened together do not tick together.
    pub progress_interval: Duration,
}

/// A request that got no answer in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The stream was closed.
    #[error("the watch stream is closed; open a new one")]
    UnknownStream,
    /// Too many answers wait to be read.
    #[error("the client does not read its answers; retry after Wake::drained")]
    Backpressure,
}

/// How many there are, for metrics.
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
    /// Watches that start at a revision to come.
    pub future: usize,
}

pub(super) struct Stream {
    pub(super) inlet: Arc<Inlet>,
    pub(super) watches: BTreeMap<i64, WatcherKey>,
    next_watch_id: i64,
    /// Watches catching up or slow.
    pub(super) lagging: usize,
    pub(super) future: usize,
    /// Slow watches by ticket.
    pub(super) slow: BTreeMap<u64, WatcherKey>,
    pub(super) progress_interval: Duration,
    pub(super) next_tick: Duration,
}

/// All watchers with the same range and filters: they always get the same events.
pub(super) struct Group {
    pub(super) range: KeyRange,
    pub(super) filters: Filters,
    pub(super) watchers: usize,
    /// The members `publish` feeds, with all it needs to know about them.
    pub(super) synced: Vec<Member>,
    /// Newest revision that had an event for the synced members.
    pub(super) last_event_revision: i64,
    /// Scratch of `publish`: which events of the revision match. Empty between calls.
    pub(super) matched: Vec<usize>,
}

/// A synced watcher as `publish` sees it: no look-ups needed to feed it.
pub(super) struct Member {
    pub(super) inlet: Arc<Inlet>,
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
    pub(super) watchers: Slab<Watcher>,
    pub(super) groups: Slab<Group>,
    pub(super) index: RangeIndex<GroupKey>,
    /// Watches that wait for a revision, by it.
    pub(super) future: BTreeSet<(i64, WatcherKey)>,
    /// Watches that read history, by ticket: the oldest ticket has its turn first.
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
        }
    }

    /// Opens a stream: the id for requests, and the end the network task reads.
    pub fn open_stream(
        &mut self,
        options: StreamOptions,
        wake: Arc<dyn Wake>,
    ) -> (StreamId, Outlet) {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        let inlet = Inlet::new(self.limits, wake);
        let next_tick = options.now.saturating_add(options.progress_interval);
        self.ticks.insert((next_tick, id));
        let stream = Stream {
            inlet: Arc::clone(&inlet),
            watches: BTreeMap::new(),
            next_watch_id: 0,
            lagging: 0,
            future: 0,
            slow: BTreeMap::new(),
            progress_interval: options.progress_interval,
            next_tick,
        };
        self.streams.insert(id, stream);
        (id, Outlet::new(inlet))
    }

    /// Forgets a stream and all its watches. Nothing is sent.
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

    /// Answers a create request. The answer, also a refusal, is in the stream;
    /// the watch id is returned if the watch exists.
    ///
    /// The caller checks permission first, but only for a start revision of at
    /// least 0, and answers a failure through [`Self::refuse`].
    ///
    /// # Errors
    /// [`RequestError`] if the stream cannot take an answer; nothing happened.
    pub fn create(
        &mut self,
        id: StreamId,
        request: WatchCreateRequest,
    ) -> Result<Option<i64>, RequestError> {
        let inlet = self.answering(id)?;
        match self.try_create(id, request) {
            Ok((key, watch_id, next)) => {
                inlet.answer(Response::created(watch_id, self.revision));
                self.place(key, next);
                Ok(Some(watch_id))
            }
            Err(reason) => {
                inlet.answer(Response::refused(self.revision, Cow::Borrowed(reason)));
                Ok(None)
            }
        }
    }

    /// Answers a create request that must not be served, with the reason.
    ///
    /// # Errors
    /// [`RequestError`] if the stream cannot take an answer.
    pub fn refuse(
        &mut self,
        id: StreamId,
        reason: impl Into<Cow<'static, str>>,
    ) -> Result<(), RequestError> {
        let inlet = self.answering(id)?;
        inlet.answer(Response::refused(self.revision, reason.into()));
        Ok(())
    }

    /// Answers a cancel request; false, and no answer, for an unknown watch.
    ///
    /// # Errors
    /// [`RequestError`] if the stream cannot take an answer; nothing happened.
    pub fn cancel(&mut self, id: StreamId, watch_id: i64) -> Result<bool, RequestError> {
        let inlet = self.answering(id)?;
        let watch = self
            .streams
            .get(&id)
            .and_then(|stream| stream.watches.get(&watch_id));
        let Some(key) = watch.copied() else {
            return Ok(false);
        };
        self.remove_watcher(key);
        inlet.answer(Response::canceled(
            watch_id,
            self.revision,
            Cow::Borrowed(""),
        ));
        Ok(true)
    }

    /// Ends every watch the predicate names and tells its client why. Events
    /// that were queued before still go out first. Returns how many ended.
    pub fn cancel_where(
        &mut self,
        reason: &str,
        mut ends: impl FnMut(WatchInfo<'_>) -> bool,
    ) -> usize {
        let ending: Vec<WatcherKey> = self
            .watchers
            .iter()
            .filter(|(_, watcher)| {
                self.groups.get(watcher.group).is_some_and(|group| {
                    ends(WatchInfo {
                        stream: watcher.stream,
                        watch_id: watcher.watch_id,
                        range: &group.range,
                        state: watcher.state,
                    })
                })
            })
            .map(|(key, _)| key)
            .collect();
        for key in &ending {
            self.end_watcher(*key, |watch_id, revision| {
                Response::canceled(watch_id, revision, Cow::Owned(reason.to_owned()))
            });
        }
        ending.len()
    }

    /// The state of one watch.
    #[must_use]
    pub fn state(&self, id: StreamId, watch_id: i64) -> Option<WatchState> {
        let key = self.streams.get(&id)?.watches.get(&watch_id)?;
        self.watchers.get(*key).map(|watcher| watcher.state)
    }

    /// The store was replaced by a snapshot at `revision`. Every watch goes on
    /// from where it was; none goes back, and none that starts later starts early.
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
            self.place(key, next);
        }
    }

    fn answering(&self, id: StreamId) -> Result<Arc<Inlet>, RequestError> {
        let stream = self.streams.get(&id).ok_or(RequestError::UnknownStream)?;
        if !stream.inlet.has_answer_room() {
            return Err(RequestError::Backpressure);
        }
        Ok(Arc::clone(&stream.inlet))
    }

    /// Registers a watch, not yet placed: its key, its id and its next revision.
    fn try_create(
        &mut self,
        id: StreamId,
        request: WatchCreateRequest,
    ) -> Result<(WatcherKey, i64, i64), &'static str> {
        if request.start_revision < 0 {
            return Err(EtcdError::Compacted.text());
        }
        let filters = Filters::from_request(&request);
        let range =
            KeyRange::from_request(request.key, request.range_end).ok_or(EMPTY_RANGE_REASON)?;
        // The caller found the stream; were it gone, this is also etcd's answer.
        let stream = self.streams.get_mut(&id).ok_or(EMPTY_RANGE_REASON)?;
        if stream.watches.len() >= self.limits.watches_max {
            return Err(EtcdError::TooManyRequests.text());
        }
        let watch_id = if request.watch_id == 0 {
            while stream.watches.contains_key(&stream.next_watch_id) {
                stream.next_watch_id += 1;
            }
            stream.next_watch_id
        } else if stream.watches.contains_key(&request.watch_id) {
            return Err(DUPLICATE_ID_REASON);
        } else {
            request.watch_id
        };
        let group = match self.index.registered(&range).iter().find(|key| {
            self.groups
                .get(**key)
                .is_some_and(|group| group.filters == filters)
        }) {
            Some(key) => *key,
            None => {
                let key = self.groups.insert(Group {
                    range: range.clone(),
                    filters,
                    watchers: 0,
                    synced: Vec::new(),
                    last_event_revision: 0,
                    matched: Vec::new(),
                });
                self.index.insert(&range, key);
                key
            }
        };
        if let Some(group) = self.groups.get_mut(group) {
            group.watchers += 1;
        }
        let next = match request.start_revision {
            0 => self.revision + 1,
            start => start,
        };
        // In no list yet: a future watch that waits for nothing in particular.
        let state = WatchState::Future { start: i64::MAX };
        let key = self.watchers.insert(Watcher {
            stream: id,
            watch_id,
            group,
            start_revision: request.start_revision,
            prev_kv: request.prev_kv,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            state,
            member_index: 0,
            ticket: 0,
            tick_revision: self.revision,
            caught_up_since_tick: false,
        });
        if request.watch_id == 0 {
            stream.next_watch_id += 1;
        }
        stream.watches.insert(watch_id, key);
        stream.future += 1;
        self.future.insert((i64::MAX, key));
        Ok((key, watch_id, next))
    }

    /// Gives a watcher the state that follows from its next revision.
    pub(super) fn place(&mut self, key: WatcherKey, next: i64) {
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

    /// The only place where a watcher changes state and lists.
    pub(super) fn set_state(&mut self, key: WatcherKey, state: WatchState) {
        self.leave(key);
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
                group.synced.push(Member {
                    inlet: Arc::clone(&stream.inlet),
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
                // Whoever still waits for the same revision keeps its turn.
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
                    stream.inlet.set_has_lagging(true);
                }
            }
        }
    }

    /// Takes a watcher out of the list its state keeps it in.
    fn leave(&mut self, key: WatcherKey) {
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
                    stream.inlet.set_has_lagging(false);
                }
            }
        }
    }

    /// Ends a watch from the server's side; `last_word` makes its final response.
    pub(super) fn end_watcher(
        &mut self,
        key: WatcherKey,
        last_word: impl FnOnce(i64, i64) -> Response,
    ) {
        let Some(watcher) = self.watchers.get(key) else {
            return;
        };
        let watch_id = watcher.watch_id;
        let inlet = self
            .streams
            .get(&watcher.stream)
            .map(|stream| Arc::clone(&stream.inlet));
        self.remove_watcher(key);
        if let Some(inlet) = inlet {
            inlet.answer(last_word(watch_id, self.revision));
        }
    }

    fn remove_watcher(&mut self, key: WatcherKey) {
        self.leave(key);
        let Some(watcher) = self.watchers.try_remove(key) else {
            return;
        };
        if let Some(stream) = self.streams.get_mut(&watcher.stream) {
            stream.watches.remove(&watcher.watch_id);
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

fn lagging_from(state: WatchState) -> Option<i64> {
    match state {
        WatchState::CatchingUp { next } | WatchState::Slow { next } => Some(next),
        WatchState::Synced | WatchState::Future { .. } => None,
    }
}
