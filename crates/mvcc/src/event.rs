//! What one revision changed, as watchers see it.

use bytes::Bytes;
use portunus_proto::mvccpb::KeyValue;

use crate::version::Version;

/// All changes of one revision. Shared by every watcher; never split.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionEvents {
    /// The main revision.
    pub revision: i64,
    /// The changes, by ascending sub-revision.
    pub events: Box<[Event]>,
}

/// Whether a key was written or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Created or overwritten.
    Put,
    /// Removed.
    Delete,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The new state; of a delete only key and `mod_revision`.
    pub kv: KeyValue,
    /// The version before this revision, if the key existed and that version is
    /// not compacted. Its value may have left memory:
    /// [`Reader::prev_kv`](crate::Reader::prev_kv) makes the message.
    pub prev: Option<Version>,
}

impl Event {
    pub(crate) fn put(kv: KeyValue, prev: Option<Version>) -> Self {
        Self {
            kind: EventKind::Put,
            kv,
            prev,
        }
    }

    pub(crate) fn delete(key: Bytes, mod_revision: i64, prev: Option<Version>) -> Self {
        Self {
            kind: EventKind::Delete,
            kv: KeyValue {
                key,
                mod_revision,
                ..KeyValue::default()
            },
            prev,
        }
    }

    /// Whether this put began a life of the key.
    #[must_use]
    pub fn is_create(&self) -> bool {
        self.kind == EventKind::Put && self.kv.create_revision == self.kv.mod_revision
    }
}
