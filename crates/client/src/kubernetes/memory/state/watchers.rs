//! Watches: the position of each one in the log, and the events it has not returned yet.
//!
//! A watch reads the log when it is polled, so that a slow consumer takes no memory. Only a
//! compaction copies events out of the log, up to [`EVENTS_BUFFERED_MAX`] for each watch; a watch
//! that has more of them to read ends, as one that is too slow for the history of etcd does.

use std::collections::{BTreeMap, VecDeque};

use super::history::{Change, History, KeyRange};
use crate::kubernetes::{Error, WatchEvent};

/// The largest number of events that a compaction keeps for a watch that did not read them yet,
/// beside those of the last revision, which is never split.
pub(super) const EVENTS_BUFFERED_MAX: usize = 4096;

/// One watch.
#[derive(Debug)]
struct Watcher {
    range: KeyRange,
    stream_key: String,
    /// The revision from which on the watch returns bookmarks, as in etcd: its first one, or the
    /// newest one if it had none.
    bookmarks_from: i64,
    /// The first revision that was not read from the log yet.
    next_revision: i64,
    /// Events that were read from the log and not returned yet.
    buffer: VecDeque<WatchEvent>,
    /// The revision of a bookmark that comes after all events up to it.
    bookmark: Option<i64>,
    /// Why the watch ends when its buffer is empty.
    end: Option<Error>,
}

impl Watcher {
    /// Reads the next revision with events, or the bookmark before it, into the buffer. Returns
    /// whether there was one.
    fn read(&mut self, history: &History) -> bool {
        let next = history.next_change(&self.range, self.next_revision);
        if let Some(bookmark) = self.bookmark
            && next.is_none_or(|next| next > bookmark)
        {
            self.bookmark = None;
            self.buffer
                .push_back(WatchEvent::Bookmark { revision: bookmark });
            return true;
        }
        let Some(next) = next else {
            self.next_revision = self.next_revision.max(history.revision() + 1);
            return false;
        };
        let changes = history.changes(next).iter();
        let changes = changes.filter(|change| self.range.contains(&change.key));
        self.buffer
            .extend(changes.map(|change| event(change, next)));
        self.next_revision = next + 1;
        true
    }

    /// Reads what a compaction removes from the log; the watch ends if that is too much.
    fn read_before(&mut self, revision: i64, history: &History) {
        while self.next_revision < revision && self.end.is_none() {
            let next = history.next_change(&self.range, self.next_revision);
            if next.is_none_or(|next| next >= revision) {
                self.next_revision = revision;
            } else if self.buffer.len() < EVENTS_BUFFERED_MAX {
                self.read(history);
            } else {
                self.end = Some(Error::Compacted {
                    compact_revision: Some(revision),
                });
            }
        }
    }
}

fn event(change: &Change, revision: i64) -> WatchEvent {
    let key = change.key.clone();
    let previous = change.previous.as_ref().map(|kv| kv.value.clone());
    match (change.current.as_ref(), previous) {
        (Some(kv), None) => WatchEvent::Added {
            key,
            value: kv.value.clone(),
            revision,
        },
        (Some(kv), Some(previous_value)) => WatchEvent::Modified {
            key,
            value: kv.value.clone(),
            previous_value,
            revision,
        },
        (None, previous) => WatchEvent::Deleted {
            key,
            previous_value: previous.unwrap_or_default(),
            revision,
        },
    }
}

/// What a watch returns to its consumer.
#[derive(Debug)]
pub(in crate::kubernetes::memory) enum Polled {
    /// The next event.
    Event(WatchEvent),
    /// Nothing yet.
    Pending,
    /// The watch is over.
    End,
}

/// All watches of a store.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    by_id: BTreeMap<u64, Watcher>,
    created: u64,
}

impl Watchers {
    /// Creates a watch that begins after a revision, or after the newest one if it is 0.
    pub(super) fn create(
        &mut self,
        range: KeyRange,
        stream_key: String,
        revision: i64,
        history: &History,
    ) -> u64 {
        let after = if revision == 0 {
            history.revision()
        } else {
            revision
        };
        let next_revision = after.saturating_add(1);
        let is_compacted = next_revision < history.compact_revision();
        self.created += 1;
        let watcher = Watcher {
            range,
            stream_key,
            bookmarks_from: if revision == 0 { after } else { next_revision },
            next_revision,
            buffer: VecDeque::new(),
            bookmark: None,
            end: is_compacted.then(|| history.compacted()),
        };
        self.by_id.insert(self.created, watcher);
        self.created
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    pub(super) fn poll(&mut self, id: u64, history: &History) -> Polled {
        let Some(watcher) = self.by_id.get_mut(&id) else {
            return Polled::End;
        };
        if watcher.buffer.is_empty() && watcher.end.is_none() {
            watcher.read(history);
        }
        if let Some(event) = watcher.buffer.pop_front() {
            return Polled::Event(event);
        }
        match watcher.end.take() {
            None => Polled::Pending,
            Some(error) => {
                self.by_id.remove(&id);
                Polled::Event(WatchEvent::Error(error))
            }
        }
    }

    /// Sends a bookmark of the newest revision to the watches of a stream, unless one of them
    /// begins at a later one. Returns whether the stream has a watch.
    pub(super) fn bookmark_stream(&mut self, stream_key: &str, history: &History) -> bool {
        let revision = history.revision();
        let of_stream =
            |watcher: &&mut Watcher| watcher.stream_key == stream_key && watcher.end.is_none();
        let mut watchers: Vec<_> = self.by_id.values_mut().filter(of_stream).collect();
        if watchers.iter().all(|it| it.bookmarks_from <= revision) {
            for watcher in &mut watchers {
                watcher.bookmark = Some(revision);
            }
        }
        !watchers.is_empty()
    }

    /// Sends a bookmark of the newest revision to every watch that has begun.
    pub(super) fn bookmark_all(&mut self, history: &History) {
        let revision = history.revision();
        for watcher in self.by_id.values_mut() {
            if watcher.bookmarks_from <= revision {
                watcher.bookmark = Some(revision);
            }
        }
    }

    /// Ends the watches of a stream after the events that they have not returned yet.
    pub(super) fn cancel_stream(&mut self, stream_key: &str, reason: &str, history: &History) {
        for watcher in self.by_id.values_mut() {
            if watcher.stream_key == stream_key && watcher.end.is_none() {
                watcher.read_before(history.revision() + 1, history);
                watcher.end.get_or_insert_with(|| Error::Canceled {
                    reason: reason.to_owned(),
                });
            }
        }
    }

    /// Copies the events that a compaction removes to the watches that have not read them yet.
    pub(super) fn prepare_compaction(&mut self, revision: i64, history: &History) {
        for watcher in self.by_id.values_mut() {
            watcher.read_before(revision, history);
        }
    }
}
