//! Violated invariants.

use portunus_consensus::bootstrap::{NewClusterError, RestartError};
use portunus_consensus::core::{AppliedBeyondCommit, ConfChangeError, StartError, StepError};
use portunus_proto::raftpb::ConfState;
use portunus_wal::WriteError;
use thiserror::Error;

/// The short name used in this module.
pub type Violation = ViolationError;

/// A violated invariant. Ids are raft ids.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
pub enum ViolationError {
    /// One term has two leaders.
    #[error("{one:x} and {other:x} both lead term {term}")]
    TwoLeaders { term: u64, one: u64, other: u64 },
    /// A leader lacks a committed entry.
    #[error("{id:x} leads term {term} without the committed entry {index}")]
    LeaderIncomplete { id: u64, term: u64, index: u64 },
    /// Two logs agree at an index but not before it.
    #[error("the log of {id:x} has another entry or history at {index} in term {term}")]
    LogsDiffer { id: u64, index: u64, term: u64 },
    /// Two different entries are committed at one index.
    #[error("{id:x} has committed another entry at {index}")]
    CommittedTwice { id: u64, index: u64 },
    /// An entry is committed after a gap.
    #[error("{id:x} has committed {index}, but no member has committed the entry before")]
    CommitGap { id: u64, index: u64 },
    /// An entry is applied that was not committed.
    #[error("{id:x} has applied {index}, which was not committed with this term")]
    AppliedUncommitted { id: u64, index: u64 },
    /// An entry is applied after a gap.
    #[error("{id:x} applies {index} after {applied_index}")]
    AppliedWithGap {
        id: u64,
        index: u64,
        applied_index: u64,
    },
    /// Two state machines differ at one index.
    #[error("{id:x} has another state at {index}")]
    StatesDiffer { id: u64, index: u64 },
    /// Two members have different keys or records at one index.
    #[error("{id:x} and {of:x} have different contents at {index}")]
    ContentsDiffer { id: u64, of: u64, index: u64 },
    /// Two members have different hashes of a compaction.
    #[error("{id:x} has another hash of revision {revision}")]
    HashesDiffer { id: u64, revision: i64 },
    /// Two members have different members, versions or features at one index.
    #[error("{id:x} has different members or features at {index}: {other}, not {one}")]
    FeaturesDiffer {
        id: u64,
        index: u64,
        one: String,
        other: String,
    },
    /// The decided feature values do not follow from the flags of the members.
    #[error("the decided features do not follow from the members' flags: {what}")]
    FeaturesNotFromFlags { what: String },
    /// Two members have different member lists at one index.
    #[error("{id:x} has different members at {index}: {other:?}, not {one:?}")]
    MembersDiffer {
        id: u64,
        index: u64,
        one: ConfState,
        other: ConfState,
    },
    /// Raft and the state machine have different member lists.
    #[error("raft of {id:x} has different members at {index}: {raft:?}, not {state_machine:?}")]
    RaftMembersDiffer {
        id: u64,
        index: u64,
        raft: ConfState,
        state_machine: ConfState,
    },
    /// A read misses an entry that was committed before it.
    #[error("{id:x} answers a read at {index}, but {floor} was committed before")]
    StaleRead { id: u64, index: u64, floor: u64 },
    /// A member votes twice in one term.
    #[error("{id:x} votes for {one:x} and {other:x} in term {term}")]
    TwoVotes {
        id: u64,
        term: u64,
        one: u64,
        other: u64,
    },
    /// A message depends on state that is not durable.
    #[error("{id:x} sends a message that depends on undurable state: {what}")]
    SentBeforeDurable { id: u64, what: String },
    /// A restart lost synced state.
    #[error("the disk of {id:x} has lost synced state: {what}")]
    LostSynced { id: u64, what: String },
    /// A member refuses a message that no correct member sends, or that its log contradicts.
    #[error("{id:x} refused a message of another member")]
    MessageRefused { id: u64, source: StepError },
    /// Raft accepted a snapshot that the member does not have.
    #[error("{id:x} has no snapshot {index} to install, although raft accepted it")]
    NoSnapshotToInstall { id: u64, index: u64 },
    /// A snapshot has the content of another index.
    #[error("{id:x} installed a snapshot of {index}, which has the content of {found}")]
    WrongSnapshot { id: u64, index: u64, found: u64 },
    /// The store cannot be opened or written.
    #[error("the store of {id:x} failed: {why}")]
    Open { id: u64, why: String },
    /// The state machine refuses an entry.
    #[error("{id:x} cannot apply an entry")]
    Apply {
        id: u64,
        source: Box<portunus_statemachine::EntryError>,
    },
    /// A revision was not published to watches.
    #[error("{id:x} published revision {revision} after a gap")]
    WatchGap { id: u64, revision: i64 },
    /// A client got an answer that the order of the log does not explain.
    #[error("request {request}: {what}")]
    WrongAnswer { request: u64, what: String },
    /// A request took effect although its client received an error.
    #[error("request {request} took effect at {index} after its client received an error")]
    LateProposal { request: u64, index: u64 },
    /// A watcher got a wrong event, or none.
    #[error("watcher {watcher}: {what}")]
    WrongWatch { watcher: u64, what: String },
    /// A lease ended too early or too late, or was not found.
    #[error("lease {lease}: {what}")]
    WrongLease { lease: i64, what: String },
    /// A member does not restart.
    #[error("{id:x} does not start")]
    Restart { id: u64, source: RestartError },
    /// A member does not start for the first time.
    #[error("{id:x} does not start for the first time")]
    FirstStart { id: u64, source: NewClusterError },
    /// Raft refuses the state of a restarted member.
    #[error("{id:x} does not start: its log is inconsistent")]
    Core { id: u64, source: StartError },
    /// The log refuses a write.
    #[error("the log of {id:x} refuses a write")]
    Write { id: u64, source: WriteError },
    /// The state machine is ahead of raft.
    #[error("{id:x} has applied beyond the commit index")]
    Applied {
        id: u64,
        source: AppliedBeyondCommit,
    },
    /// Raft refuses a committed change of membership.
    #[error("{id:x} cannot apply the membership change at {index}")]
    ConfChange {
        id: u64,
        index: u64,
        source: ConfChangeError,
    },
    /// The cluster does not converge without faults.
    #[error("without faults the cluster did not converge within {ticks} ticks: {why}")]
    NotLive { ticks: u64, why: String },
}

impl ViolationError {
    /// Returns whether a disk without power can be the cause.
    pub(super) fn is_of_disk(&self) -> bool {
        matches!(
            self,
            Self::Restart { .. } | Self::FirstStart { .. } | Self::Write { .. }
        )
    }

    /// Formats the violation with its sources.
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
