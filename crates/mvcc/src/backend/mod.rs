//! Storage of records on disk: ten ordered buckets with atomic commits.
//!
//! Only the write-behind thread commits; readers take snapshots. A backend uses
//! only the byte order of revisions, and never retries a failed commit.

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
    /// Adds a record to the `key` bucket. Its revision is greater than every stored one.
    PutRecord {
        /// Key of the record.
        key: RecordKey,
        /// The record; the backend encodes it.
        record: KeyValue,
    },
    /// Adds a record that another store encoded and that is known to decode.
    PutEncodedRecord {
        /// Key of the record.
        key: RecordKey,
        /// The encoded record.
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
    /// Approximate memory of the change while it is queued.
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

/// Bytes a backend uses on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Allocated, whether used or free. The quota is checked against this.
    pub total_bytes: u64,
    /// Bytes of `total_bytes` that hold data.
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

    /// Returns unused space to the file system. Readers and applying continue;
    /// commits wait only for the final swap.
    fn defragment(&self) -> Result<(), BackendError>;
}

/// The callback of [`Snapshot::scan`], with key and value of each entry.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A backend's state after one commit. Two scans return the same entries.
pub trait Snapshot: Send {
    /// Returns the value of one entry.
    fn get(&self, bucket: Bucket, key: &[u8]) -> Result<Option<Bytes>, BackendError>;

    /// Visits all entries from `from` on, by ascending key, until `visit` breaks.
    fn scan(&self, bucket: Bucket, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BackendError>;
}

/// An error of opening, reading or writing a backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// LMDB returned an error.
    #[error("LMDB could not {action} {}", .path.display())]
    Lmdb {
        /// The failed operation.
        action: &'static str,
        /// The database file.
        path: PathBuf,
        /// Cause of the failure.
        source: heed::Error,
    },
    /// The disk is full.
    #[error(
        "no space left on device: could not {action} {}; free some space there or enlarge the \
         volume, then start the member again",
        .path.display()
    )]
    NoSpace {
        /// The failed operation.
        action: &'static str,
        /// The database file.
        path: PathBuf,
    },
    /// A file system operation failed.
    #[error("could not {action} {}", .path.display())]
    File {
        /// The failed operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Cause of the failure.
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
        /// Size of the current map.
        map_bytes: usize,
    },
    /// An earlier commit failed, so the state on disk is unknown.
    #[error("an earlier commit failed; nothing is written any more until a restart")]
    Poisoned,
    /// A failure requested by a test.
    #[error("a commit or read failed on request")]
    Injected,
}
