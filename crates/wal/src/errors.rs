//! One error enum per operation on the log. Each message names the next step.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::invariants::LogRuleViolation;

/// An error of creating a log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The directory is not empty; creating never overwrites.
    #[error("{} already holds files; open the log there, or choose an empty directory", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// A file system operation failed.
    #[error("could not create a write-ahead log in {}; check space and permissions", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

/// The kinds of damage of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damage {
    /// The length field is one that no writer produces.
    #[error("the length field of a record is not valid")]
    BadLength,
    /// A length field of zero is followed by record bytes.
    #[error("the length field of a record has been erased")]
    ErasedLength,
    /// A record of an older segment is incomplete.
    #[error("a record ends beyond the file although a later file exists")]
    CutShort,
    /// The structure of the record is invalid.
    #[error("a record is malformed")]
    Malformed,
    /// The checksum does not match the data.
    #[error("a checksum does not match: expected {expected:08x}, computed {computed:08x}")]
    Checksum {
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes read.
        computed: u32,
    },
    /// The padding is not zero.
    #[error("the padding of a record is not zero")]
    Padding,
    /// The segment does not start with a checksum and a metadata record.
    #[error("the segment does not start with a checksum and a metadata record")]
    SegmentHead,
    /// The metadata differs from that of an earlier segment.
    #[error("the metadata differs from that of earlier segments; files of two members are mixed")]
    ForeignMetadata,
    /// The record is intact but violates a rule of the raft log.
    #[error("the record breaks a rule of the log: {0}")]
    Rule(LogRuleViolation),
}

/// An error of reading a log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The directory holds no log.
    #[error("{} holds no write-ahead log", dir.display())]
    NoLog {
        /// The directory.
        dir: PathBuf,
    },
    /// A segment file is missing.
    #[error("{}: a segment before {next} is missing; restore it, or rebuild this member from its peers", dir.display())]
    MissingSegment {
        /// The directory.
        dir: PathBuf,
        /// Name of the segment after the gap.
        next: String,
    },
    /// A record is damaged.
    #[error("{} is damaged at byte {offset}: {damage}; do not edit it, rebuild this member from its peers or a backup", file.display())]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Offset of the record.
        offset: u64,
        /// Kind of damage.
        damage: Damage,
    },
    /// A file system operation failed.
    #[error("could not read {}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

impl ReadError {
    /// Whether there is no log; all other errors concern an existing log.
    #[must_use]
    pub fn is_no_log(&self) -> bool {
        match self {
            Self::NoLog { .. } => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::MissingSegment { .. } | Self::Damaged { .. } => false,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// An error of opening a log. Nothing on disk was changed, except that a torn
/// tail may already have been removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process holds the lock of the log.
    #[error("{} is in use by another process; stop that one first", file.display())]
    Locked {
        /// The segment that is locked.
        file: PathBuf,
    },
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// All segments start after the snapshot.
    #[error("the log in {} starts after index {index}; open it at a newer snapshot", dir.display())]
    SnapshotTooOld {
        /// The directory.
        dir: PathBuf,
        /// Index of the requested snapshot.
        index: u64,
    },
    /// The log holds no record of the requested snapshot.
    #[error("the log in {} has no snapshot at index {index}; log and snapshot do not belong together", dir.display())]
    SnapshotNotFound {
        /// The directory.
        dir: PathBuf,
        /// Index of the requested snapshot.
        index: u64,
    },
    /// The recorded snapshot has another term.
    #[error("the log in {} has the snapshot at index {index} in term {found}, not {requested}; log and snapshot do not belong together", dir.display())]
    SnapshotTermMismatch {
        /// The directory.
        dir: PathBuf,
        /// Index of the snapshot.
        index: u64,
        /// Term in the log.
        found: u64,
        /// Requested term.
        requested: u64,
    },
    /// The tail could not be made ready for appending.
    #[error("could not prepare {} for appending; check space and permissions", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

/// An error of preparing the next segment.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The disk is full.
    #[error("no space for the next log segment {} ({bytes} bytes); free space on that file system, then restart the member", path.display())]
    NoSpace {
        /// The file being prepared.
        path: PathBuf,
        /// Space one segment needs.
        bytes: u64,
        /// Error of the file system.
        source: io::Error,
    },
    /// A file system operation failed.
    #[error("could not prepare the next log segment {}; check the disk, then restart the member", path.display())]
    Io {
        /// The file being prepared.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The helper thread stopped after an earlier error.
    #[error("the helper that prepares log segments has stopped; restart the member")]
    HelperGone,
}

impl PrepareError {
    pub(crate) fn of(path: &Path, bytes: u64, source: io::Error) -> Self {
        let path = path.to_owned();
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&source.kind()) {
            Self::NoSpace {
                path,
                bytes,
                source,
            }
        } else {
            Self::Io { path, source }
        }
    }
}

/// An error of writing to the log. After any of these except [`Self::Rejected`]
/// the log accepts no more writes: the state on disk is unknown until a restart
/// reads it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The records violate a rule of the log; nothing was written and the log is still usable.
    #[error("the log refuses a record that would make it unreadable")]
    Rejected(#[from] LogRuleViolation),
    /// An earlier write failed.
    #[error("the log stopped at an earlier write error; restart the member")]
    Poisoned,
    /// A write failed.
    #[error("could not write to {}; check the disk, then restart the member", file.display())]
    Write {
        /// The segment.
        file: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// A sync failed; it must not be retried.
    #[error("could not sync {}; check the disk, then restart the member", path.display())]
    Sync {
        /// Segment or directory.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The current segment is full and no next one is available.
    #[error("could not begin the next log segment")]
    NextSegment(#[from] PrepareError),
    /// The next segment could not be renamed.
    #[error("could not rename a prepared segment to {}; check the disk, then restart the member", file.display())]
    Rename {
        /// The new name.
        file: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

/// An error of removing an old segment. The log stays usable.
#[derive(Debug, Error)]
#[error("could not remove the old log segment {}; remove it by hand or free its file system", file.display())]
pub struct ReleaseError {
    /// The segment.
    pub file: PathBuf,
    /// Error of the file system.
    pub source: io::Error,
}
