//! Delivers live events to synced watches. Runs on the apply thread.
//!
//! The cost is one search per event and, per matching watcher, one push of a
//! pointer into its stream's queue. The matching events are found once per
//! group of watchers with the same range; if a queue has no room, its watcher
//! becomes slow and the sync loop serves it.

use std::sync::{Arc, MutexGuard};

use thiserror::Error;

use super::delivery::{Delivery, EncodedRevision};
use super::event::RevisionEvents;
use super::hub::{Hub, SyncedWatcher};
use super::response_queue::{Item, Limits, PushResult, Queue, QueueShare, ResponseSender};
use super::watcher::{WatchState, WatcherKey};

/// Events were published out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("revision {published} was published after {newest}; revisions must ascend")]
pub struct PublishError {
    /// The published revision.
    pub published: i64,
    /// The newest revision of the hub.
    pub newest: i64,
}

impl Hub {
    /// Queues the events of the next revision for every synced watch. The
    /// events should carry their previous versions ([`super::Event::put`] and
    /// [`super::Event::delete`]), because live watches do not look them up: a watch that wants
    /// one that is not known reads the revision from history instead.
    ///
    /// If revisions were skipped, every watch reads them from history first.
    ///
    /// # Errors
    /// [`PublishError`] if the revision is not newer than the last; nothing was changed.
    pub fn publish(&mut self, events: &Arc<RevisionEvents>) -> Result<(), PublishError> {
        let revision = events.revision;
        if revision <= self.revision {
            return Err(PublishError {
                published: revision,
                newest: self.revision,
            });
        }
        if revision > self.revision + 1 {
            self.catch_up_from(self.revision + 1);
        }
        self.revision = revision;
        self.start_due(revision);
        self.match_groups(events);
        if !self.touched.is_empty() {
            self.fan_out(events);
        }
        Ok(())
    }

    /// Makes every synced watch read history from `next` on.
    fn catch_up_from(&mut self, next: i64) {
        let synced: Vec<WatcherKey> = self
            .watchers
            .iter()
            .filter(|(_, watcher)| watcher.state == WatchState::Synced)
            .map(|(key, _)| key)
            .collect();
        for key in synced {
            self.set_state(key, WatchState::CatchingUp { next });
        }
    }

    /// Starts future watches whose first revision is being published or was skipped.
    fn start_due(&mut self, revision: i64) {
        while let Some(&(start, key)) = self.future.first() {
            if start > revision {
                return;
            }
            let state = if start == revision {
                WatchState::Synced
            } else {
                WatchState::CatchingUp { next: start }
            };
            self.set_state(key, state);
        }
    }

    /// Records the matching events in each group that has synced watchers.
    fn match_groups(&mut self, events: &Arc<RevisionEvents>) {
        let (groups, touched) = (&mut self.groups, &mut self.touched);
        for (number, event) in events.events.iter().enumerate() {
            self.index.visit(&event.kv().key, |key| {
                let Some(group) = groups.get_mut(key) else {
                    return;
                };
                if group.synced.is_empty() || !group.filters.accept(event.kind()) {
                    return;
                }
                if group.matched.is_empty() {
                    touched.push(key);
                }
                group.matched.push(number);
            });
        }
    }

    fn fan_out(&mut self, events: &Arc<RevisionEvents>) {
        let revision = events.revision;
        let encoded = Arc::new(EncodedRevision::new(Arc::clone(events)));
        let all_known = events.events.iter().all(|it| it.known_prev().is_some());
        let mut touched = std::mem::take(&mut self.touched);
        let mut refused = std::mem::take(&mut self.refused);
        for key in touched.drain(..) {
            let Some(group) = self.groups.get_mut(key) else {
                continue;
            };
            let delivery = if group.matched.len() == events.events.len() {
                Delivery::Whole(Arc::clone(&encoded))
            } else {
                let picks = group
                    .matched
                    .iter()
                    .map(|number| (Arc::clone(&encoded), *number));
                Delivery::selected(revision, picks.collect())
            };
            let lacks_prev = |number: &usize| events.events[*number].known_prev().is_none();
            let has_prevs = all_known || !group.matched.iter().any(lacks_prev);
            group.matched.clear();
            group.last_event_revision = revision;
            let group_delivery = GroupDelivery {
                delivery,
                has_prevs,
            };
            push_to_all(&group.synced, &group_delivery, &self.limits, &mut refused);
        }
        for key in refused.drain(..) {
            self.set_state(key, WatchState::Slow { next: revision });
        }
        self.touched = touched;
        self.refused = refused;
    }
}

/// The delivery that a group of watchers shares.
struct GroupDelivery {
    delivery: Delivery,
    /// Whether the previous versions of all its events are known.
    has_prevs: bool,
}

/// Pushes the delivery to every watcher, keeping a queue locked for consecutive
/// watchers of one stream.
fn push_to_all(
    members: &[SyncedWatcher],
    group_delivery: &GroupDelivery,
    limits: &Limits,
    refused: &mut Vec<WatcherKey>,
) {
    let mut open: Option<(&Arc<ResponseSender>, MutexGuard<'_, Queue>, bool)> = None;
    for member in members {
        if member.prev_kv && !group_delivery.has_prevs {
            refused.push(member.watcher);
            continue;
        }
        let same = open
            .as_ref()
            .is_some_and(|(sender, ..)| Arc::ptr_eq(sender, &member.sender));
        if !same {
            unlock_and_wake(open.take());
            open = Some((&member.sender, member.sender.lock(), false));
        }
        let Some((_, queue, wake)) = &mut open else {
            continue;
        };
        let item = Item::Events {
            watch_id: member.watch_id,
            with_prev: member.prev_kv,
            fragment: member.fragment,
            delivery: group_delivery.delivery.clone(),
        };
        match queue.push(item, QueueShare::Live, limits) {
            PushResult::Queued => {}
            PushResult::QueuedFirst => *wake = true,
            PushResult::Full => refused.push(member.watcher),
        }
    }
    unlock_and_wake(open);
}

/// Unlocks the queue, then wakes the reader, which takes the same lock.
fn unlock_and_wake(open: Option<(&Arc<ResponseSender>, MutexGuard<'_, Queue>, bool)>) {
    if let Some((sender, queue, wake)) = open {
        drop(queue);
        if wake {
            sender.wake_reader();
        }
    }
}
