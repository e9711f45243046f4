//! Errors of the driver.

use std::io;

use portunus_wal::WriteError;
use thiserror::Error;

use crate::{
    core::{self, AppliedBeyondCommit, LogLost},
    engine::CompactionRefused,
};

/// Why the driver did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The initial state is inconsistent.
    #[error("this member's raft state cannot be right")]
    Core(#[from] core::StartError),
    /// A thread could not be started.
    #[error("could not start a thread; check the limits on processes and memory")]
    Thread(#[source] io::Error),
}

/// Why a proposal was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// The proposal queue is full: the disk or the cluster does not keep up.
    #[error("{entries} proposals with {bytes} bytes are waiting already; try again later")]
    Overloaded {
        /// The number of waiting proposals.
        entries: usize,
        /// Their size in bytes.
        bytes: usize,
    },
    /// The member is stopping.
    #[error("this member's consensus has stopped")]
    Stopped,
}

/// Why a read index is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadIndexError {
    /// The leader of the round is not the leader any more.
    #[error("the leader changed while the read was waiting; try again")]
    LeaderChanged,
    /// The member is stopping.
    #[error("this member's consensus has stopped")]
    Stopped,
}

/// Why the log was not compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The index is not applied.
    #[error("index {index} cannot be compacted: only {applied_index} is applied")]
    NotApplied {
        /// The requested index.
        index: u64,
        /// The applied index.
        applied_index: u64,
    },
    /// The index was compacted before.
    #[error("index {index} has been compacted already")]
    AlreadyCompacted {
        /// The requested index.
        index: u64,
    },
    /// The member is stopping.
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

/// Why the member cannot continue. The process must end: the state of the disk is unknown, or
/// the state machine is wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FatalError {
    /// A write or sync failed. It is never retried.
    #[error("the write-ahead log failed")]
    Log(#[from] WriteError),
    /// The log lacks entries that this member has acknowledged.
    #[error(transparent)]
    LogLost(#[from] LogLost),
    /// More than the committed entries was reported as applied: a bug.
    #[error("the state machine is ahead of the log")]
    Applied(#[from] AppliedBeyondCommit),
    /// A driver thread panicked: a bug.
    #[error("a thread of this member's consensus panicked")]
    Panicked,
}
