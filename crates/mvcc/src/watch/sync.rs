//! Bringing watches that are behind back in step, a little at a time.
//!
//! ```text
//!   plan (hub) ──▶ read (history, no hub needed) ──▶ commit (hub)
//! ```
//!
//! A round is split in three so that a server may hold the hub's lock only for
//! the short outer parts while `read` goes to disk; publishing never waits for
//! it. [`Hub::sync_step`] does all three at once. A watch that is only
//! a few revisions behind should be finished with `sync_step`, because between
//! the parts new revisions can be published.
//!
//! Fairness: watches take turns by ticket; each gets at most one response per
//! round. One read of history serves every planned watch that starts inside it.

use std::collections::HashMap;
use std::sync::Arc;

use super::delivery::{Delivery, EncodedRevision};
use super::event::{History, RevisionEvents};
use super::hub::Hub;
use super::index::RangeIndex;
use super::outlet::{Item, Share};
use super::range::KeyRange;
use super::response::Response;
use super::watcher::{Filters, GroupKey, WatchState, WatcherKey};

/// Distinct revisions in one catch-up response.
const RESPONSE_REVISIONS_MAX: usize = 1000;

/// How much one round may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncBudget {
    /// Watches advanced.
    pub watchers_max: usize,
    /// Revisions read from history.
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

/// What is left after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct SyncReport {
    /// Watches that can go on now: call again soon.
    pub runnable: usize,
    /// Watches that wait for their client to read; [`super::Wake::drained`] tells.
    pub waiting_for_reader: usize,
}

/// Which watches a round advances, and from where.
pub struct SyncPlan {
    /// In order of their turns.
    turns: Vec<Turn>,
    ranges: Vec<(KeyRange, Filters)>,
    /// Newest revision of the hub; later ones belong to the next round.
    newest: i64,
    revisions_max: usize,
    response_bytes_max: usize,
}

struct Turn {
    watcher: WatcherKey,
    ticket: u64,
    next: i64,
    range: usize,
    prev_kv: bool,
}

/// What a round found; [`Hub::sync_commit`] delivers it.
pub struct SyncBatch {
    outcomes: Vec<Outcome>,
}

struct Outcome {
    watcher: WatcherKey,
    ticket: u64,
    from: i64,
    found: Found,
}

enum Found {
    /// Everything before `next` is covered; `delivery` holds what matched.
    Upto {
        next: i64,
        delivery: Option<Delivery>,
    },
    /// What the watch needs is gone.
    Compacted { compact_revision: i64 },
}

impl Hub {
    /// One whole round: [`Self::sync_plan`], [`SyncPlan::read`], [`Self::sync_commit`].
    pub fn sync_step(&mut self, history: &dyn History, budget: SyncBudget) -> SyncReport {
        let batch = self.sync_plan(budget).read(history);
        self.sync_commit(batch)
    }

    /// Chooses whose turn it is. Watches of streams without room are parked.
    pub fn sync_plan(&mut self, budget: SyncBudget) -> SyncPlan {
        self.unpark(budget.watchers_max);
        let mut plan = SyncPlan {
            turns: Vec::new(),
            ranges: Vec::new(),
            newest: self.revision,
            revisions_max: budget.revisions_max.max(1),
            response_bytes_max: self.limits.catch_up_bytes_max,
        };
        let mut parked: Vec<(WatcherKey, i64)> = Vec::new();
        let mut ranges: HashMap<GroupKey, usize> = HashMap::new();
        for (ticket, key) in &self.catching_up {
            if plan.turns.len() + parked.len() >= budget.watchers_max {
                break;
            }
            let Some(watcher) = self.watchers.get(*key) else {
                continue;
            };
            let WatchState::CatchingUp { next } = watcher.state else {
                continue;
            };
            let stream = self.streams.get(&watcher.stream);
            if !stream.is_some_and(|stream| stream.inlet.has_room()) {
                parked.push((*key, next));
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
            plan.turns.push(Turn {
                watcher: *key,
                ticket: *ticket,
                next,
                range,
                prev_kv,
            });
        }
        for (key, next) in parked {
            self.set_state(key, WatchState::Slow { next });
        }
        plan
    }

    /// Queues what was read. Watches that ended or moved since are left alone.
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

    fn commit_one(&mut self, outcome: Outcome) {
        let key = outcome.watcher;
        let (next, delivery) = match outcome.found {
            Found::Upto { next, delivery } => (next, delivery),
            Found::Compacted { compact_revision } => {
                return self.end_watcher(key, |watch_id, _| {
                    Response::compacted(watch_id, compact_revision)
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
            if !stream.inlet.offer(item, Share::All) {
                return self.set_state(key, WatchState::Slow { next: outcome.from });
            }
            watcher.caught_up_since_tick = true;
        }
        self.place(key, next);
    }

    /// Lets slow watches of streams that have room take turns again.
    fn unpark(&mut self, watchers_max: usize) {
        let mut ready: Vec<WatcherKey> = Vec::new();
        for id in &self.starved {
            let Some(stream) = self.streams.get(id) else {
                continue;
            };
            if stream.inlet.has_room() {
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

impl SyncPlan {
    /// Reads what the planned watches need. Needs no hub; may go to disk.
    #[must_use]
    pub fn read(self, history: &dyn History) -> SyncBatch {
        let newest = self.newest.min(history.revision());
        let mut index = RangeIndex::new();
        for (number, (range, _)) in self.ranges.iter().enumerate() {
            index.insert(range, number);
        }
        let mut by_next: Vec<usize> = (0..self.turns.len()).collect();
        by_next.sort_by_key(|turn| self.turns[*turn].next);

        let mut done = vec![false; self.turns.len()];
        let mut outcomes = Vec::with_capacity(self.turns.len());
        let mut revisions_left = self.revisions_max;
        for first in 0..self.turns.len() {
            if done[first] {
                continue;
            }
            let turn = &self.turns[first];
            let read = Span::read(history, turn.next, newest, revisions_left);
            let span = match read {
                Ok(span) => span,
                Err(compact_revision) => {
                    done[first] = true;
                    outcomes.push(turn.outcome(Found::Compacted { compact_revision }));
                    continue;
                }
            };
            let mut matches = Matches::new(&self, &index, span);
            let served = by_next.partition_point(|other| self.turns[*other].next < turn.next);
            for number in &by_next[served..] {
                let other = &self.turns[*number];
                if other.next > matches.span.covered.max(turn.next) {
                    break;
                }
                if !std::mem::replace(&mut done[*number], true) {
                    outcomes.push(other.outcome(matches.found_for(other, newest, history)));
                }
            }
            revisions_left = revisions_left.saturating_sub(matches.span.revisions.len());
            if revisions_left == 0 {
                break;
            }
        }
        SyncBatch { outcomes }
    }
}

impl Turn {
    fn outcome(&self, found: Found) -> Outcome {
        Outcome {
            watcher: self.watcher,
            ticket: self.ticket,
            from: self.next,
            found,
        }
    }
}

/// Consecutive revisions read at once.
struct Span {
    revisions: Vec<Arc<RevisionEvents>>,
    /// Last revision about which everything is known.
    covered: i64,
}

impl Span {
    /// `Err` carries the compact revision if `from` is gone.
    fn read(
        history: &dyn History,
        from: i64,
        newest: i64,
        revisions_max: usize,
    ) -> Result<Self, i64> {
        let compact_revision = history.compact_revision();
        if from < compact_revision {
            return Err(compact_revision);
        }
        if from > newest {
            return Ok(Self {
                revisions: Vec::new(),
                covered: from - 1,
            });
        }
        let read = history
            .events_since(from, revisions_max.min(RESPONSE_REVISIONS_MAX))
            .map_err(|gone| gone.compact_revision)?;
        // A history that repeats itself or runs ahead of the hub must not reach
        // a client twice, so only ascending revisions up to the hub's count.
        let mut revisions: Vec<Arc<RevisionEvents>> = Vec::with_capacity(read.len());
        let mut last = from - 1;
        let mut ran_out = read.is_empty();
        for revision in read {
            if revision.revision > newest {
                ran_out = true;
                break;
            }
            if revision.revision > last {
                last = revision.revision;
                revisions.push(revision);
            }
        }
        let covered = if ran_out { newest } else { last };
        Ok(Self { revisions, covered })
    }
}

/// Where in a span an event is.
#[derive(Clone, Copy)]
struct Place {
    revision: usize,
    event: usize,
}

/// A span, and which of its events each planned range gets.
struct Matches<'a> {
    plan: &'a SyncPlan,
    span: Span,
    by_range: Vec<Vec<Place>>,
    encoded: Vec<Option<Arc<EncodedRevision>>>,
    /// Deliveries by range, first place and prev_kv: watchers that fell behind
    /// together share one.
    made: HashMap<(usize, usize, bool), (Delivery, i64)>,
}

impl<'a> Matches<'a> {
    fn new(plan: &'a SyncPlan, index: &RangeIndex<usize>, span: Span) -> Self {
        let mut by_range: Vec<Vec<Place>> = vec![Vec::new(); plan.ranges.len()];
        for (revision, events) in span.revisions.iter().enumerate() {
            for (event, content) in events.events.iter().enumerate() {
                index.visit(&content.kv().key, |range| {
                    if plan.ranges[range].1.accept(content.kind()) {
                        by_range[range].push(Place { revision, event });
                    }
                });
            }
        }
        let encoded = vec![None; span.revisions.len()];
        Self {
            plan,
            span,
            by_range,
            encoded,
            made: HashMap::new(),
        }
    }

    fn found_for(&mut self, turn: &Turn, newest: i64, history: &dyn History) -> Found {
        let all = &self.by_range[turn.range];
        let first =
            all.partition_point(|place| self.span.revisions[place.revision].revision < turn.next);
        if first == all.len() {
            return Found::Upto {
                next: self.span.covered.max(turn.next - 1) + 1,
                delivery: None,
            };
        }
        let key = (turn.range, first, turn.prev_kv);
        if !self.made.contains_key(&key) {
            let made = self.make(turn, first, newest, history);
            self.made.insert(key, made);
        }
        match self.made.get(&key) {
            Some((delivery, next)) => Found::Upto {
                next: *next,
                delivery: Some(delivery.clone()),
            },
            None => Found::Upto {
                next: turn.next,
                delivery: None,
            },
        }
    }

    /// As many whole revisions as fit in one response, and the revision after them.
    fn make(
        &mut self,
        turn: &Turn,
        first: usize,
        newest: i64,
        history: &dyn History,
    ) -> (Delivery, i64) {
        let mut picks: Vec<(Arc<EncodedRevision>, usize)> = Vec::new();
        let mut bytes = 0_usize;
        let mut next = self.span.covered + 1;
        for same in self.by_range[turn.range][first..].chunk_by(|a, b| a.revision == b.revision) {
            let number = same[0].revision;
            let revision = &self.span.revisions[number];
            let mut revision_bytes = 0;
            for place in same {
                let event = &revision.events[place.event];
                if turn.prev_kv {
                    event.resolve_prev(history);
                }
                revision_bytes += event.bytes_estimate(turn.prev_kv);
            }
            if !picks.is_empty() && bytes + revision_bytes > self.plan.response_bytes_max {
                next = revision.revision;
                break;
            }
            bytes += revision_bytes;
            let encoded = self.encoded[number]
                .get_or_insert_with(|| Arc::new(EncodedRevision::new(Arc::clone(revision))));
            picks.extend(same.iter().map(|place| (Arc::clone(encoded), place.event)));
        }
        (Delivery::picked(newest, picks.into()), next)
    }
}
