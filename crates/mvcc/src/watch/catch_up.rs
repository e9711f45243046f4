//! Reads history for the watches of one sync round.
//!
//! Uses neither the hub nor any queue, so it runs without the hub's lock.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use super::delivery::{Delivery, EncodedRevision};
use super::event::{History, HistoryError, RevisionEvents};
use super::index::RangeIndex;
use super::sync::{PlannedWatch, ReadOutcome, ReadResult, SyncBatch, SyncPlan};
use crate::error::ReadError;

/// Distinct revisions in one catch-up response.
pub(super) const RESPONSE_REVISIONS_MAX: usize = 1000;

impl SyncPlan {
    /// Reads the events that the planned watches need. Needs no hub; may read from disk.
    #[must_use]
    pub fn read(self, history: &dyn History) -> SyncBatch {
        let newest = self.newest.min(history.revision());
        let mut index = RangeIndex::new();
        for (number, (range, _)) in self.ranges.iter().enumerate() {
            index.insert(range, number);
        }
        let mut by_next: Vec<usize> = (0..self.watches.len()).collect();
        by_next.sort_by_key(|watch| self.watches[*watch].next);

        let mut done = vec![false; self.watches.len()];
        let mut outcomes = Vec::with_capacity(self.watches.len());
        let mut revisions_left = self.revisions_max;
        for first in 0..self.watches.len() {
            if done[first] {
                continue;
            }
            let watch = &self.watches[first];
            let read = Span::read(history, watch.next, newest, revisions_left);
            let span = match read {
                Ok(span) => span,
                Err(error) => {
                    // Watches that start in the same revisions read them on their own: a later
                    // read may succeed.
                    done[first] = true;
                    outcomes.push(watch.outcome(ReadResult::from(error)));
                    continue;
                }
            };
            let mut matches = Matches::new(&self, &index, span);
            let served = by_next.partition_point(|other| self.watches[*other].next < watch.next);
            for number in &by_next[served..] {
                let other = &self.watches[*number];
                if other.next > matches.span.covered.max(watch.next) {
                    break;
                }
                if !std::mem::replace(&mut done[*number], true) {
                    let result = matches.result_for(other, newest, history);
                    outcomes.push(other.outcome(result.unwrap_or_else(ReadResult::from)));
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

impl From<HistoryError> for ReadResult {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Compacted { compact_revision } => Self::Compacted { compact_revision },
            HistoryError::Read(error) => Self::Failed {
                reason: cancel_reason(&error),
            },
        }
    }
}

/// The error and its causes in one line, as clients see errors of the server.
fn cancel_reason(error: &ReadError) -> String {
    let mut reason = format!("etcdserver: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        reason.push_str(": ");
        reason.push_str(&cause.to_string());
        source = cause.source();
    }
    reason
}

impl PlannedWatch {
    fn outcome(&self, result: ReadResult) -> ReadOutcome {
        ReadOutcome {
            watcher: self.watcher,
            ticket: self.ticket,
            from: self.next,
            result,
        }
    }
}

/// Consecutive revisions read at once.
struct Span {
    revisions: Vec<Arc<RevisionEvents>>,
    /// Last revision whose events were all read.
    covered: i64,
}

impl Span {
    fn read(
        history: &dyn History,
        from: i64,
        newest: i64,
        revisions_max: usize,
    ) -> Result<Self, HistoryError> {
        let compact_revision = history.compact_revision();
        if from < compact_revision {
            return Err(HistoryError::Compacted { compact_revision });
        }
        if from > newest {
            return Ok(Self {
                revisions: Vec::new(),
                covered: from - 1,
            });
        }
        let read = history.events_since(from, revisions_max.min(RESPONSE_REVISIONS_MAX))?;
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

/// The position of an event in a span.
#[derive(Clone, Copy)]
struct EventPosition {
    revision: usize,
    event: usize,
}

/// A span, and the events of it that match each planned range.
struct Matches<'a> {
    plan: &'a SyncPlan,
    span: Span,
    by_range: Vec<Vec<EventPosition>>,
    encoded: Vec<Option<Arc<EncodedRevision>>>,
    /// Deliveries by range, first position and prev_kv: watchers at the same revision share one.
    made: HashMap<(usize, usize, bool), (Delivery, i64)>,
}

impl<'a> Matches<'a> {
    fn new(plan: &'a SyncPlan, index: &RangeIndex<usize>, span: Span) -> Self {
        let mut by_range: Vec<Vec<EventPosition>> = vec![Vec::new(); plan.ranges.len()];
        for (revision, events) in span.revisions.iter().enumerate() {
            for (event, content) in events.events.iter().enumerate() {
                index.visit(&content.kv().key, |range| {
                    if plan.ranges[range].1.accept(content.kind()) {
                        by_range[range].push(EventPosition { revision, event });
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

    fn result_for(
        &mut self,
        watch: &PlannedWatch,
        newest: i64,
        history: &dyn History,
    ) -> Result<ReadResult, HistoryError> {
        let all = &self.by_range[watch.range];
        let first = all.partition_point(|position| {
            self.span.revisions[position.revision].revision < watch.next
        });
        if first == all.len() {
            return Ok(ReadResult::Upto {
                next: self.span.covered.max(watch.next - 1) + 1,
                delivery: None,
            });
        }
        let key = (watch.range, first, watch.prev_kv);
        if !self.made.contains_key(&key) {
            let made = self.build(watch, first, newest, history)?;
            self.made.insert(key, made);
        }
        Ok(match self.made.get(&key) {
            Some((delivery, next)) => ReadResult::Upto {
                next: *next,
                delivery: Some(delivery.clone()),
            },
            None => ReadResult::Upto {
                next: watch.next,
                delivery: None,
            },
        })
    }

    /// Builds a delivery of as many whole revisions as fit in one response; also returns the
    /// revision after them.
    fn build(
        &mut self,
        watch: &PlannedWatch,
        first: usize,
        newest: i64,
        history: &dyn History,
    ) -> Result<(Delivery, i64), HistoryError> {
        let mut picks: Vec<(Arc<EncodedRevision>, usize)> = Vec::new();
        let mut bytes = 0_usize;
        let mut next = self.span.covered + 1;
        for same in self.by_range[watch.range][first..].chunk_by(|a, b| a.revision == b.revision) {
            let number = same[0].revision;
            let revision = &self.span.revisions[number];
            let mut revision_bytes = 0;
            for position in same {
                let event = &revision.events[position.event];
                if watch.prev_kv {
                    event.look_up_prev(history)?;
                }
                revision_bytes += event.bytes_estimate(watch.prev_kv);
            }
            if !picks.is_empty() && bytes + revision_bytes > self.plan.response_bytes_max {
                next = revision.revision;
                break;
            }
            bytes += revision_bytes;
            let encoded = self.encoded[number]
                .get_or_insert_with(|| Arc::new(EncodedRevision::new(Arc::clone(revision))));
            picks.extend(
                same.iter()
                    .map(|position| (Arc::clone(encoded), position.event)),
            );
        }
        Ok((Delivery::selected(newest, picks.into()), next))
    }
}
