//! Brings lagging watches back in sync, in bounded rounds.
//!
//! ```text
//!   plan (hub) ──▶ read (history, no hub needed) ──▶ commit (hub)
//! ```
//!
//! A round has three parts so that a server holds the hub's lock only for the
//! short outer parts while `read` accesses the disk; publishing never waits for
//! it. [`Hub::sync_step`] runs all three. A watch that is only a few revisions
//! behind should be synced with `sync_step`, because between the parts new
//! revisions can be published.
//!
//! Fairness: watches take turns by ticket; each gets at most one response per
//! round. One read of history serves every planned watch that starts inside it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::catch_up::RESPONSE_REVISIONS_MAX;
use super::delivery::Delivery;
use super::event::History;
use super::hub::Hub;
use super::range::KeyRange;
use super::response::Response;
use super::response_queue::{Item, QueueShare};
use super::watcher::{Filters, GroupKey, WatchState, WatcherKey};

/// Limits of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncBudget {
    /// Maximum number of watches advanced.
    pub watchers_max: usize,
    /// Maximum number of revisions read from history.
    pub revisions_max: usize,
}

impl Default for SyncBudget {
    fn default() -> Self {
        Self {
            watchers_max: 512,
            revisions_max: 4 * RESPONSE_REVISIONS_MAX,
        }
    }
}

/// Lagging watches after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct SyncReport {
    /// Watches that can advance now: call again soon.
    pub runnable: usize,
    /// Watches that wait for their client to read; [`super::Wake::drained`] is called when there is
    /// room.
    pub waiting_for_reader: usize,
}

/// The watches that a round advances, with their next revisions.
pub struct SyncPlan {
    /// In order of their turns.
    pub(super) watches: Vec<PlannedWatch>,
    pub(super) ranges: Vec<(KeyRange, Filters)>,
    /// Newest revision of the hub; later ones belong to the next round.
    pub(super) newest: i64,
    pub(super) revisions_max: usize,
    pub(super) response_bytes_max: usize,
}

pub(super) struct PlannedWatch {
    pub(super) watcher: WatcherKey,
    pub(super) ticket: u64,
    pub(super) next: i64,
    pub(super) range: usize,
    pub(super) prev_kv: bool,
}

/// The results of a round; [`Hub::sync_commit`] delivers them.
pub struct SyncBatch {
    pub(super) outcomes: Vec<ReadOutcome>,
}

pub(super) struct ReadOutcome {
    pub(super) watcher: WatcherKey,
    pub(super) ticket: u64,
    pub(super) from: i64,
    pub(super) result: ReadResult,
}

pub(super) enum ReadResult {
    /// Everything before `next` is covered; `delivery` holds the events that matched.
    Upto {
        next: i64,
        delivery: Option<Delivery>,
    },
    /// The revisions that the watch needs are compacted.
    Compacted { compact_revision: i64 },
    /// What the watch needs could not be read.
    Failed { reason: String },
}

impl Hub {
    /// One whole round: [`Self::sync_plan`], [`SyncPlan::read`], [`Self::sync_commit`].
    pub fn sync_step(&mut self, history: &dyn History, budget: SyncBudget) -> SyncReport {
        let batch = self.sync_plan(budget).read(history);
        self.sync_commit(batch)
    }

    /// Selects the watches of the next round. Watches of streams without room become slow.
    pub fn sync_plan(&mut self, budget: SyncBudget) -> SyncPlan {
        self.resume_slow(budget.watchers_max);
        let mut plan = SyncPlan {
            watches: Vec::new(),
            ranges: Vec::new(),
            newest: self.revision,
            revisions_max: budget.revisions_max.max(1),
            response_bytes_max: self.limits.catch_up_bytes_max,
        };
        let mut without_room: Vec<(WatcherKey, i64)> = Vec::new();
        let mut ranges: HashMap<GroupKey, usize> = HashMap::new();
        for (ticket, key) in &self.catching_up {
            if plan.watches.len() + without_room.len() >= budget.watchers_max {
                break;
            }
            let Some(watcher) = self.watchers.get(*key) else {
                continue;
            };
            let WatchState::CatchingUp { next } = watcher.state else {
                continue;
            };
            let stream = self.streams.get(&watcher.stream);
            if !stream.is_some_and(|stream| stream.sender.has_room()) {
                without_room.push((*key, next));
                continue;
            }
            let Some(group) = self.groups.get(watcher.group) else {
                continue;
            };
            let range = *ranges.entry(watcher.group).or_insert_with(|| {
                plan.ranges.push((group.range.clone(), group.filters));
                plan.ranges.len() - 1
            });
            let prev_kv = watcher.prev_kv;
            plan.watches.push(PlannedWatch {
                watcher: *key,
                ticket: *ticket,
                next,
                range,
                prev_kv,
            });
        }
        for (key, next) in without_room {
            self.set_state(key, WatchState::Slow { next });
        }
        plan
    }

    /// Queues the deliveries that were read. Watches that ended or changed
    /// state since the plan are skipped.
    pub fn sync_commit(&mut self, batch: SyncBatch) -> SyncReport {
        for outcome in batch.outcomes {
            let current = self.watchers.get(outcome.watcher).is_some_and(|watcher| {
                watcher.ticket == outcome.ticket
                    && watcher.state == WatchState::CatchingUp { next: outcome.from }
            });
            if current {
                self.commit_one(outcome);
            }
        }
        let stats = self.stats();
        SyncReport {
            runnable: stats.catching_up,
            waiting_for_reader: stats.slow,
        }
    }

    fn commit_one(&mut self, outcome: ReadOutcome) {
        let key = outcome.watcher;
        let (next, delivery) = match outcome.result {
            ReadResult::Upto { next, delivery } => (next, delivery),
            ReadResult::Compacted { compact_revision } => {
                return self.end_watcher(key, |watch_id, _| {
                    Response::compacted(watch_id, compact_revision)
                });
            }
            ReadResult::Failed { reason } => {
                return self.end_watcher(key, |watch_id, revision| {
                    Response::canceled(watch_id, revision, Cow::Owned(reason))
                });
            }
        };
        if let Some(delivery) = delivery {
            let Some(watcher) = self.watchers.get_mut(key) else {
                return;
            };
            let Some(stream) = self.streams.get(&watcher.stream) else {
                return;
            };
            let item = Item::Events {
                watch_id: watcher.watch_id,
                with_prev: watcher.prev_kv,
                fragment: watcher.fragment,
                delivery,
            };
            if !stream.sender.push(item, QueueShare::All) {
                return self.set_state(key, WatchState::Slow { next: outcome.from });
            }
            watcher.caught_up_since_tick = true;
        }
        self.update_state(key, next);
    }

    /// Moves slow watches of streams that have room back to catching up.
    fn resume_slow(&mut self, watchers_max: usize) {
        let mut ready: Vec<WatcherKey> = Vec::new();
        for id in &self.starved {
            let Some(stream) = self.streams.get(id) else {
                continue;
            };
            if stream.sender.has_room() {
                ready.extend(stream.slow.values().take(watchers_max));
            }
        }
        for key in ready {
            let Some(watcher) = self.watchers.get(key) else {
                continue;
            };
            if let WatchState::Slow { next } = watcher.state {
                self.set_state(key, WatchState::CatchingUp { next });
            }
        }
    }
}
