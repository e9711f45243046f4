//! The events of a revision, and read access to past events.
//!
//! The store builds one [`RevisionEvents`] per write transaction, which the
//! server publishes to the hub. [`History`] reads past events from the store.
//! This module does not depend on watchers.

use std::sync::OnceLock;
use std::{fmt, sync::Arc};

use bytes::Bytes;
use portunus_proto::mvccpb::{self, KeyValue};
use thiserror::Error;

use crate::{
    error::ReadError,
    rules::Copies,
    version::{Value, Version},
};

/// The kind of change an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The key was created or changed.
    Put,
    /// The key was deleted.
    Delete,
}

/// One change of one key.
///
/// The version before the change may be unknown at first: an event read from
/// disk does not carry it. It is then looked up at most once per event, for all
/// watchers together.
pub struct Event {
    kind: EventKind,
    kv: KeyValue,
    /// Empty: not looked up yet.
    prev: OnceLock<Option<KeyValue>>,
}

impl Event {
    /// A put whose predecessor is known; `None` means the put created the key.
    #[must_use]
    pub fn put(kv: KeyValue, prev: Option<KeyValue>) -> Self {
        Self {
            kind: EventKind::Put,
            kv,
            prev: OnceLock::from(prev),
        }
    }

    /// A delete whose predecessor is known; `None` if it is compacted.
    #[must_use]
    pub fn delete(key: Bytes, revision: i64, prev: Option<KeyValue>) -> Self {
        Self {
            kind: EventKind::Delete,
            kv: tombstone(key, revision),
            prev: OnceLock::from(prev),
        }
    }

    /// A put read from history without its predecessor. A put that created the key may
    /// have one too: its transaction may have deleted the key first.
    #[must_use]
    pub fn put_without_prev(kv: KeyValue) -> Self {
        Self {
            kind: EventKind::Put,
            kv,
            prev: OnceLock::new(),
        }
    }

    /// A delete read from history without its predecessor.
    #[must_use]
    pub fn delete_without_prev(key: Bytes, revision: i64) -> Self {
        Self {
            kind: EventKind::Delete,
            kv: tombstone(key, revision),
            prev: OnceLock::new(),
        }
    }

    /// A put, given the version it replaced. A value that is only in the backend is looked up when
    /// a watcher needs it.
    pub(crate) fn after_put(kv: KeyValue, prev: Option<&Version>) -> Self {
        match prev.map(|prev| (prev, &prev.value)) {
            None => Self::put(kv, None),
            Some((prev, Value::Resident(value))) => {
                let prev = prev.with_value(kv.key.clone(), value.to_bytes(&mut Copies::default()));
                Self::put(kv, Some(prev))
            }
            Some(_) => Self::put_without_prev(kv),
        }
    }

    /// A delete, given the version it ended; see [`Self::after_put`].
    pub(crate) fn after_delete(key: &Bytes, revision: i64, prev: Option<&Version>) -> Self {
        match prev.map(|prev| (prev, &prev.value)) {
            None => Self::delete(key.clone(), revision, None),
            Some((prev, Value::Resident(value))) => {
                let prev = prev.with_value(key.clone(), value.to_bytes(&mut Copies::default()));
                Self::delete(key.clone(), revision, Some(prev))
            }
            Some(_) => Self::delete_without_prev(key.clone(), revision),
        }
    }

    /// Returns whether the event is a put or a delete.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// The new version; for a delete only the key and the revision of the delete.
    #[must_use]
    pub fn kv(&self) -> &KeyValue {
        &self.kv
    }

    /// The version before the event, if there was one and it is known.
    #[must_use]
    pub fn prev(&self) -> Option<&KeyValue> {
        self.prev.get().and_then(Option::as_ref)
    }

    /// The version before the event, `Some(None)` if there was none; `None` if it was not
    /// looked up yet.
    #[must_use]
    pub fn known_prev(&self) -> Option<Option<&KeyValue>> {
        self.prev.get().map(Option::as_ref)
    }

    /// Looks the predecessor up, unless that was done before.
    ///
    /// # Errors
    /// [`HistoryError`] if it could not be read; it stays unknown.
    pub fn look_up_prev(&self, history: &dyn History) -> Result<(), HistoryError> {
        if self.prev.get().is_none() {
            let prev = history.prev_kv(&self.kv.key, self.kv.mod_revision)?;
            // Another thread may have found the same meanwhile.
            let _ = self.prev.set(prev);
        }
        Ok(())
    }

    pub(super) fn to_message(&self, with_prev: bool) -> mvccpb::Event {
        let kind = match self.kind {
            EventKind::Put => mvccpb::event::EventType::Put,
            EventKind::Delete => mvccpb::event::EventType::Delete,
        };
        mvccpb::Event {
            r#type: kind.into(),
            kv: Some(self.kv.clone()),
            prev_kv: if with_prev {
                self.prev().cloned()
            } else {
                None
            },
        }
    }

    /// Close upper estimate of the encoded size; exact enough to bound queues.
    pub(crate) fn bytes_estimate(&self, with_prev: bool) -> usize {
        let size = |kv: &KeyValue| kv.key.len() + kv.value.len() + EVENT_FIXED_BYTES;
        let prev = if with_prev {
            self.prev().map_or(0, size)
        } else {
            0
        };
        size(&self.kv) + prev
    }
}

/// Tags, lengths and the five integers of one key-value record, roughly.
const EVENT_FIXED_BYTES: usize = 48;

fn tombstone(key: Bytes, revision: i64) -> KeyValue {
    KeyValue {
        key,
        mod_revision: revision,
        ..KeyValue::default()
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.kv, self.prev()) == (other.kind, &other.kv, other.prev())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {:?}@{}",
            self.kind, self.kv.key, self.kv.mod_revision
        )
    }
}

/// All events of one revision, in the order of the transaction's operations.
#[derive(Debug, PartialEq)]
pub struct RevisionEvents {
    /// The revision; every event in `events` has it as its `mod_revision`.
    pub revision: i64,
    /// Never empty: a transaction that changes nothing makes no revision.
    pub events: Box<[Event]>,
}

/// Why a history gave no events.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The asked revision is older than what the store still has.
    #[error(
        "history before revision {compact_revision} is compacted; start at that revision or later"
    )]
    Compacted {
        /// The oldest revision that can still be read.
        compact_revision: i64,
    },
    /// The events are there, but this read of them failed.
    #[error(transparent)]
    Read(ReadError),
}

/// Read access to past revisions, for watchers that are behind.
///
/// Implemented by the store over an immutable view. Revisions at and after
/// `compact_revision` are complete, including a delete exactly there.
pub trait History {
    /// The newest revision in this view.
    fn revision(&self) -> i64;

    /// The oldest revision whose events are complete; 0 if never compacted.
    fn compact_revision(&self) -> i64;

    /// The oldest `revisions_max` revisions at or after `from`, ascending. It
    /// may return fewer, to bound its own memory, but returns none only if
    /// there are none.
    ///
    /// # Errors
    /// [`HistoryError::Compacted`] if `from` is before [`Self::compact_revision`];
    /// [`HistoryError::Read`] if the events could not be read.
    fn events_since(
        &self,
        from: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, HistoryError>;

    /// The version of `key` just before `mod_revision`; `None` if it did not
    /// exist then or that is compacted.
    ///
    /// # Errors
    /// [`HistoryError::Read`] if it could not be read.
    fn prev_kv(&self, key: &[u8], mod_revision: i64) -> Result<Option<KeyValue>, HistoryError>;
}

#[cfg(test)]
mod tests {
    use portunus_proto::LeaseId;

    use super::*;
    use crate::revision::Revision;

    #[test]
    fn put_that_recreates_a_key_looks_up_an_evicted_previous_version() {
        let deleted_before_in_the_same_transaction = Version {
            revision: Revision::first_of(4),
            create_revision: 4,
            version: 1,
            lease: LeaseId::NONE,
            value: Value::InBackend,
        };
        let created = KeyValue {
            create_revision: 5,
            mod_revision: 5,
            version: 1,
            ..KeyValue::default()
        };
        let event = Event::after_put(created, Some(&deleted_before_in_the_same_transaction));
        assert_eq!(event.known_prev(), None);
    }
}
