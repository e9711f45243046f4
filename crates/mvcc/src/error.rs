//! Errors of reading, applying and opening.
//!
//! A refusal ([`EtcdError`]) is an answer for a client and changes nothing. A failed read is an
//! error of its reader unless it found damage ([`ReadError::is_damage`]). All else here means
//! this member must stop: its state and its disk can no longer be trusted to agree.

use std::sync::Arc;

use portunus_proto::EtcdError;

use crate::{
    backend::{BackendError, Bucket},
    revision::Revision,
};

/// An error of a read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The request is answered with this error.
    #[error(transparent)]
    Refused(#[from] EtcdError),
    /// The backend could not be read.
    #[error("the backend could not be read; check the disk")]
    Backend(#[from] BackendError),
    /// A record that must exist does not.
    #[error(
        "no record at revision {}/{} although the index holds it; the backend is damaged: \
         stop this member and replace its data from a snapshot",
        .0.main, .0.sub
    )]
    MissingRecord(Revision),
    /// A record is not a `KeyValue`.
    #[error(
        "the record at revision {}/{} cannot be decoded; the backend is damaged: stop this member \
         and replace its data from a snapshot",
        .revision.main, .revision.sub
    )]
    DamagedRecord {
        /// Revision of the record.
        revision: Revision,
        /// Error of the decoder.
        source: prost::DecodeError,
    },
    /// Waiting for the write-behind queue ended without a commit.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

impl ReadError {
    /// Whether the stored data is damaged. Otherwise only this read failed: a later read may
    /// succeed, and earlier reads are correct.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::MissingRecord(_) | Self::DamagedRecord { .. } => true,
            Self::Refused(_) | Self::Backend(_) | Self::Fault(_) => false,
        }
    }
}

/// The reason why the store accepts no more changes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreFault {
    /// A commit failed. It is never retried: which part reached the disk is unknown.
    #[error("a commit to the backend failed; stop this member, check its disk, start it again")]
    CommitFailed(#[source] Arc<BackendError>),
    /// A transaction failed after its first change because state could not be
    /// read.
    #[error(
        "a read failed in the middle of a transaction, so memory no longer agrees with the log; \
         stop this member, check its disk, start it again"
    )]
    HalfApplied,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// An error of applying an entry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The entry is answered with this error and changed nothing.
    #[error(transparent)]
    Refused(#[from] EtcdError),
    /// Pre-transaction state could not be read; stop.
    #[error(transparent)]
    Read(ReadError),
    /// The store is poisoned; stop.
    #[error(transparent)]
    Fault(#[from] StoreFault),
    /// Entries are out of order; stop.
    #[error(
        "entry {offered} was offered but {applied} is applied already; the log and the store \
         disagree: stop this member and compare its WAL with its backend"
    )]
    IndexWentBack {
        /// Index of the entry offered.
        offered: u64,
        /// Index of the newest entry applied.
        applied: u64,
    },
    /// A change was made outside `begin` and `end`.
    #[error("a change was made outside of a log entry; call begin before it")]
    OutsideEntry,
    /// `begin` was called before the `end` of the previous entry.
    #[error("entry {0} was not ended before the next one began; call end after each entry")]
    EntryNotEnded(u64),
}

impl From<ReadError> for ApplyError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Refused(refusal) => Self::Refused(refusal),
            ReadError::Fault(fault) => Self::Fault(fault),
            other => Self::Read(other),
        }
    }
}

impl ApplyError {
    /// Returns the error for the client, or `None` if this member must stop.
    #[must_use]
    pub const fn refusal(&self) -> Option<EtcdError> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            _ => None,
        }
    }
}

/// An error of opening a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The backend could not be read.
    #[error("the backend could not be read")]
    Backend(#[from] BackendError),
    /// A key of the `key` bucket is not a revision.
    #[error(
        "bucket key holds an entry whose key {key:02x?} is no revision; this is not an etcd \
         store, or it is damaged: restore it from a snapshot"
    )]
    ForeignRecord {
        /// The bytes found.
        key: Vec<u8>,
    },
    /// A record of the `key` bucket is not a `KeyValue`.
    #[error(
        "the record at revision {}/{} cannot be decoded; restore this member from a snapshot",
        .revision.main, .revision.sub
    )]
    DamagedRecord {
        /// Revision of the record.
        revision: Revision,
        /// Error of the decoder.
        source: prost::DecodeError,
    },
    /// An entry of the `meta` bucket has the wrong length or form.
    #[error(
        "bucket {} holds {value:02x?} under {key}, which cannot be read; restore this member \
         from a snapshot",
        .bucket.name()
    )]
    DamagedMeta {
        /// The bucket.
        bucket: Bucket,
        /// Key of the entry.
        key: &'static str,
        /// Value of the entry.
        value: Vec<u8>,
    },
    /// The write-behind thread could not be started.
    #[error("the write-behind thread could not be started")]
    Thread(#[source] std::io::Error),
}
