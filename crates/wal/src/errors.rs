//! One error per operation on the log. Each message says what to do next.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::invariants::LogRuleViolation;

/// Why no log was created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Creating never overwrites.
    #[error("{} already holds files; open the log there, or choose an empty directory", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// The file system refused.
    #[error("could not create a write-ahead log in {}; check space and permissions", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damage {
    /// No writer produces this length field.
    #[error("the length field of a record is not valid")]
    BadLength,
    /// A length field of zero with record bytes right behind it.
    #[error("the length field of a record has been erased")]
    ErasedLength,
    /// A record of an older segment is incomplete.
    #[error("a record ends beyond the file although a later file exists")]
    CutShort,
    /// The record's own structure is broken.
    #[error("a record is malformed")]
    Malformed,
    /// The checksum does not match the data.
    #[error("a checksum does not match: expected {expected:08x}, computed {computed:08x}")]
    Checksum {
        /// As stored.
        expected: u32,
        /// Over what was read.
        computed: u32,
    },
    /// Padding must be zero.
    #[error("the padding of a record is not zero")]
    Padding,
    /// Every segment starts with checksum and metadata.
    #[error("the segment does not start with a checksum and a metadata record")]
    SegmentHead,
    /// All segments have one owner.
    #[error("the metadata differs from that of earlier segments; files of two members are mixed")]
    ForeignMetadata,
    /// The record is intact but cannot be here.
    #[error("the record breaks a rule of the log: {0}")]
    Rule(LogRuleViolation),
}

/// Why a log could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing there.
    #[error("{} holds no write-ahead log", dir.display())]
    NoLog {
        /// The directory.
        dir: PathBuf,
    },
    /// A file was removed by hand or lost.
    #[error("{}: a segment before {next} is missing; restore it, or rebuild this member from its peers", dir.display())]
    MissingSegment {
        /// The directory.
        dir: PathBuf,
        /// Name of the segment after the hole.
        next: String,
    },
    /// Bytes that were once right are wrong now.
    #[error("{} is damaged at byte {offset}: {damage}; do not edit it, rebuild this member from its peers or a backup", file.display())]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Where the record starts.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// The file system refused.
    #[error("could not read {}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

impl ReadError {
    /// Whether there simply is no log; every other error is about a log that there is.
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

/// Why a log was not opened. Nothing on disk has been changed, except that a
/// torn tail may already have been cut off.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Two writers would destroy it.
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
        /// Index of the snapshot asked for.
        index: u64,
    },
    /// Snapshots are marked in the log before they are used.
    #[error("the log in {} has no snapshot at index {index}; log and snapshot do not belong together", dir.display())]
    SnapshotNotFound {
        /// The directory.
        dir: PathBuf,
        /// Index of the snapshot asked for.
        index: u64,
    },
    /// Same index, other history.
    #[error("the log in {} has the snapshot at index {index} in term {found}, not {asked}; log and snapshot do not belong together", dir.display())]
    SnapshotTermMismatch {
        /// The directory.
        dir: PathBuf,
        /// Index of the snapshot.
        index: u64,
        /// Term in the log.
        found: u64,
        /// Term asked for.
        asked: u64,
    },
    /// The tail could not be made ready for appending.
    #[error("could not prepare {} for appending; check space and permissions", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// Why there is no next segment.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The disk is full.
    #[error("no space for the next log segment {} ({bytes} bytes); free space on that file system, then restart the member", path.display())]
    NoSpace {
        /// The file under preparation.
        path: PathBuf,
        /// Space one segment needs.
        bytes: u64,
        /// What the file system said.
        source: io::Error,
    },
    /// The file system refused.
    #[error("could not prepare the next log segment {}; check the disk, then restart the member", path.display())]
    Io {
        /// The file under preparation.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// It stopped after an earlier error.
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

/// Why something is not in the log. After any of these except [`Self::Rejected`]
/// the log is closed for good: what reached the disk is unknown until a restart
/// reads it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The caller's mistake; nothing was written and the log is still usable.
    #[error("the log refuses a record that would make it unreadable")]
    Rejected(#[from] LogRuleViolation),
    /// See the first error.
    #[error("the log stopped at an earlier write error; restart the member")]
    Poisoned,
    /// A write failed.
    #[error("could not write to {}; check the disk, then restart the member", file.display())]
    Write {
        /// The segment.
        file: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// A sync failed; it must not be tried again.
    #[error("could not sync {}; check the disk, then restart the member", path.display())]
    Sync {
        /// Segment or directory.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The current segment is full and there is no other.
    #[error("could not begin the next log segment")]
    NextSegment(#[from] PrepareError),
    /// The next segment could not be given its name.
    #[error("could not rename a prepared segment to {}; check the disk, then restart the member", file.display())]
    Rename {
        /// The new name.
        file: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// Why an old segment is still there. The log itself is unharmed.
#[derive(Debug, Error)]
#[error("could not remove the old log segment {}; remove it by hand or free its file system", file.display())]
pub struct ReleaseError {
    /// The segment.
    pub file: PathBuf,
    /// What the file system said.
    pub source: io::Error,
}
