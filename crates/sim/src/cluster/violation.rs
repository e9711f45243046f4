//! What must never happen, and did.

use portunus_consensus::bootstrap::{NewClusterError, RestartError};
use portunus_consensus::core::{AppliedBeyondCommit, ConfChangeError, StartError};
use portunus_proto::raftpb::ConfState;
use portunus_wal::WriteError;
use thiserror::Error;

/// Short, because it is everywhere.
pub type Violation = ViolationError;

/// A rule that was broken. Ids are raft's.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum ViolationError {
    /// One term, two leaders.
    #[error("{one:x} and {other:x} both lead term {term}")]
    TwoLeaders { term: u64, one: u64, other: u64 },
    /// A leader lacks what is committed.
    #[error("{id:x} leads term {term} without the committed entry {index}")]
    LeaderIncomplete { id: u64, term: u64, index: u64 },
    /// Two logs agree at an index and not before it.
    #[error("the log of {id:x} has another entry or history at {index} in term {term}")]
    LogsDiffer { id: u64, index: u64, term: u64 },
    /// Two entries are committed at one index.
    #[error("{id:x} has committed another entry at {index}")]
    CommittedTwice { id: u64, index: u64 },
    /// Something is committed after a gap.
    #[error("{id:x} has committed {index}, and nobody the one before")]
    CommitGap { id: u64, index: u64 },
    /// Something is applied that was never committed.
    #[error("{id:x} has applied {index}, which is not committed as such")]
    AppliedUncommitted { id: u64, index: u64 },
    /// Something is applied after a gap.
    #[error("{id:x} applies {index} after {applied_index}")]
    AppliedWithGap {
        id: u64,
        index: u64,
        applied_index: u64,
    },
    /// Two state machines differ at one index.
    #[error("{id:x} has another state at {index}")]
    StatesDiffer { id: u64, index: u64 },
    /// Two members have other features, or know other flags, at one index.
    #[error("{id:x} has other features at {index}: {other}, not {one}")]
    FeaturesDiffer {
        id: u64,
        index: u64,
        one: String,
        other: String,
    },
    /// What was decided is not what members were started for.
    #[error("all have settled on features that nobody asked for: {what}")]
    FeaturesNotAsAsked { what: String },
    /// Two members know other members at one index.
    #[error("{id:x} has other members at {index}: {other:?}, not {one:?}")]
    MembersDiffer {
        id: u64,
        index: u64,
        one: ConfState,
        other: ConfState,
    },
    /// Raft and the state machine know other members.
    #[error("raft of {id:x} has other members at {index}: {raft:?}, not {state_machine:?}")]
    RaftMembersDiffer {
        id: u64,
        index: u64,
        raft: ConfState,
        state_machine: ConfState,
    },
    /// A read misses what was committed before it.
    #[error("{id:x} answers a read at {index}, but {floor} was committed before")]
    StaleRead { id: u64, index: u64, floor: u64 },
    /// One member, one term, two votes.
    #[error("{id:x} votes for {one:x} and {other:x} in term {term}")]
    TwoVotes {
        id: u64,
        term: u64,
        one: u64,
        other: u64,
    },
    /// A message promises what a crash would take back.
    #[error("{id:x} sends what is not on its disk: {what}")]
    SentBeforeDurable { id: u64, what: String },
    /// The disk lost what it had promised.
    #[error("the disk of {id:x} has lost what was synced: {what}")]
    LostSynced { id: u64, what: String },
    /// A snapshot was taken that is not there.
    #[error("{id:x} has no snapshot {index} to install, although raft took it")]
    NoSnapshotToInstall { id: u64, index: u64 },
    /// A member cannot come back.
    #[error("{id:x} does not start")]
    Restart { id: u64, source: RestartError },
    /// A member cannot begin.
    #[error("{id:x} does not start for the first time")]
    FirstStart { id: u64, source: NewClusterError },
    /// Raft refuses the state a member comes back with.
    #[error("{id:x} does not start: its log contradicts itself")]
    Core { id: u64, source: StartError },
    /// The log refuses what raft wants written.
    #[error("the log of {id:x} does not take what raft wants written")]
    Write { id: u64, source: WriteError },
    /// The state machine is ahead of raft.
    #[error("{id:x} has applied too much")]
    Applied {
        id: u64,
        source: AppliedBeyondCommit,
    },
    /// Raft refuses a committed change of membership.
    #[error("{id:x} cannot make the membership change at {index}")]
    ConfChange {
        id: u64,
        index: u64,
        source: ConfChangeError,
    },
    /// It does not heal.
    #[error("without faults the cluster did not come together within {ticks} ticks: {why}")]
    NotLive { ticks: u64, why: String },
}

impl ViolationError {
    /// A disk without power explains it.
    pub(super) fn is_of_disk(&self) -> bool {
        matches!(
            self,
            Self::Restart { .. } | Self::FirstStart { .. } | Self::Write { .. }
        )
    }

    /// The message with its causes.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}
