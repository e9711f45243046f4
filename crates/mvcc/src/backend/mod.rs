//! Where records are kept on disk: ten ordered buckets with atomic commits.
//!
//! The write-behind thread commits, readers take snapshots; nobody else calls.
//! A backend knows nothing of revisions beyond how their bytes sort, and never
//! retries a failed commit.

mod bucket;
mod lmdb;
mod memory;
pub(crate) mod write_behind;

use std::{io, ops::ControlFlow, path::PathBuf};

use bytes::Bytes;
use portunus_proto::mvccpb::KeyValue;

pub use bucket::{Bucket, meta};
pub use lmdb::{Lmdb, LmdbConfig, LmdbLoad};
pub use memory::MemoryBackend;

use crate::revision::RecordKey;

/// One change of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Adds a record to the `key` bucket. Its revision is above every one there.
    PutRecord {
        /// The record's place.
        key: RecordKey,
        /// The record, encoded by whoever writes it.
        record: KeyValue,
    },
    /// Adds a record that another store has encoded, and that can be decoded.
    PutEncodedRecord {
        /// The record's place.
        key: RecordKey,
        /// The record as it is stored.
        record: Bytes,
    },
    /// Removes a record of the `key` bucket.
    DeleteRecord(RecordKey),
    /// Sets an entry of another bucket.
    Put {
        /// The bucket.
        bucket: Bucket,
        /// The entry's key.
        key: Bytes,
        /// The entry's value.
        value: Bytes,
    },
    /// Removes an entry of another bucket.
    Delete {
        /// The bucket.
        bucket: Bucket,
        /// The entry's key.
        key: Bytes,
    },
}

impl Change {
    /// Roughly what the change holds in memory while it waits.
    pub(crate) fn queued_bytes(&self) -> usize {
        let payload = match self {
            Self::PutRecord { record, .. } => record.key.len() + record.value.len(),
            Self::PutEncodedRecord { record, .. } => record.len(),
            Self::DeleteRecord(_) => 0,
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key, .. } => key.len(),
        };
        size_of::<Self>() + payload
    }
}

/// Bytes a backend takes on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Allocated, whether used or free. The quota is checked against this.
    pub total_bytes: u64,
    /// Of these, what holds data.
    pub in_use_bytes: u64,
}

/// Ten ordered buckets on disk.
pub trait Backend: Send + Sync {
    /// Makes all changes durable, or none. After an error the backend must not
    /// be written again.
    fn commit(&self, changes: &[Change]) -> Result<(), BackendError>;

    /// The state after the newest commit, unchanged by later ones.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, BackendError>;

    /// Sizes as of the newest commit. Cheap: no disk access.
    fn sizes(&self) -> Sizes;

    /// Gives unused space back to the file system. Readers and applying go on;
    /// commits wait only for the final swap.
    fn defragment(&self) -> Result<(), BackendError>;
}

/// What [`Snapshot::scan`] calls for each entry, key first.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A backend's state at one point. Iterating it twice gives the same twice.
pub trait Snapshot: Send {
    /// One entry.
    fn get(&self, bucket: Bucket, key: &[u8]) -> Result<Option<Bytes>, BackendError>;

    /// All entries from `from` on, by ascending key, until told to stop.
    fn scan(&self, bucket: Bucket, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BackendError>;
}

/// A backend that could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// LMDB refused.
    #[error("LMDB could not {action} {}", .path.display())]
    Lmdb {
        /// What was being done.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// Why not.
        source: heed::Error,
    },
    /// The disk is full.
    #[error(
        "no space left on device: could not {action} {}; free some space there or enlarge the \
         volume, then start the member again",
        .path.display()
    )]
    NoSpace {
        /// What was being done.
        action: &'static str,
        /// The database file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("could not {action} {}", .path.display())]
    File {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The memory map cannot grow further.
    #[error(
        "the database {} needs a memory map above {map_bytes} bytes; raise the address space \
         limit of the process",
        .path.display()
    )]
    MapExhausted {
        /// The database file.
        path: PathBuf,
        /// The largest map tried.
        map_bytes: usize,
    },
    /// An earlier commit failed, so the state on disk is unknown.
    #[error("an earlier commit failed; nothing is written any more until a restart")]
    Poisoned,
    /// A failure asked for by a test.
    #[error("a commit or read failed on request")]
    Injected,
}
