//! What can go wrong for whoever calls the driver.

use std::io;

use portunus_wal::WriteError;
use thiserror::Error;

use crate::{
    core::{self, AppliedBeyondCommit},
    engine::CompactionRefused,
};

/// Why the driver did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The initial state cannot be right.
    #[error("this member's raft state cannot be right")]
    Core(#[from] core::StartError),
    /// The system has no thread left.
    #[error("could not start a thread; check the limits on processes and memory")]
    Thread(#[source] io::Error),
}

/// Why a proposal was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// The disk or the cluster does not keep up.
    #[error("{entries} proposals with {bytes} bytes are waiting already; try again later")]
    Overloaded {
        /// How many are waiting.
        entries: usize,
        /// Their size.
        bytes: usize,
    },
    /// The member is going down.
    #[error("this member's consensus has stopped")]
    Stopped,
}

/// Why there is no index to read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadIndexError {
    /// The leader that was asked is not the leader any more.
    #[error("the leader changed while the read was waiting; try again")]
    LeaderChanged,
    /// The member is going down.
    #[error("this member's consensus has stopped")]
    Stopped,
}

/// Why the log was not compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompactError {
    /// Only what is applied can be let go.
    #[error("index {index} cannot be compacted: only {applied_index} is applied")]
    NotApplied {
        /// As asked.
        index: u64,
        /// What is applied.
        applied_index: u64,
    },
    /// It was let go before.
    #[error("index {index} has been compacted already")]
    AlreadyCompacted {
        /// As asked.
        index: u64,
    },
    /// The member is going down.
    #[error("this member's consensus has stopped")]
    Stopped,
}

impl From<CompactionRefused> for CompactError {
    fn from(refused: CompactionRefused) -> CompactError {
        match refused {
            CompactionRefused::NotApplied {
                index,
                applied_index,
            } => CompactError::NotApplied {
                index,
                applied_index,
            },
            CompactionRefused::AlreadyCompacted { index } => {
                CompactError::AlreadyCompacted { index }
            }
        }
    }
}

/// Why the member cannot go on. The process must end: what the disk holds is
/// unknown, or the state machine is wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FatalError {
    /// A write or sync failed. It is never tried again.
    #[error("the write-ahead log failed")]
    Log(#[from] WriteError),
    /// A bug.
    #[error("the state machine is ahead of the log")]
    Applied(#[from] AppliedBeyondCommit),
    /// A bug.
    #[error("a thread of this member's consensus panicked")]
    Panicked,
}
