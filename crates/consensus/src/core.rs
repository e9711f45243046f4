//! One member's raft, as a state machine without threads, clock, disk or network.
//!
//! Everything that happens to a member goes in through a method; everything it
//! wants done comes out of [`Core::ready`]. The driver runs it for real, a
//! simulator can run many in one loop.
//!
//! ```text
//!   tick, step, propose, read_index, transfer      ready(): what to do now
//!                     │                                   ▲
//!                     ▼                                   │
//!                   Core ────────────────────────────────┘
//!                     ▲
//!                     └── persisted(number), apply_conf_change, applied(index)
//! ```
//!
//! The rules for whoever runs it:
//! 1. After every input, call `ready` until it has nothing.
//! 2. Write entries and hard state to disk in the order of the readies; then
//!    call `persisted`. `messages` may go at once; `messages_after_persist`
//!    only when this ready and all before it are on disk.
//! 3. Apply `committed` in order. A membership change goes to
//!    `apply_conf_change` before its index goes to `applied`.
//! 4. A `snapshot` takes the place of everything up to its index. Its record goes to disk
//!    before everything else of its ready; after `persisted` the state machine is replaced,
//!    and only then what is committed later is applied.
//!
//! It never retries, never waits and never decides what an entry means.

use portunus_proto::raftpb::{ConfState, Entry, HardState, Message, SnapshotMetadata};
use thiserror::Error;

pub use crate::raft_rs::Core;

/// How a member behaves. The defaults are etcd's.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    /// The member; not 0.
    pub id: u64,
    /// Ticks without a leader before an election; at most twice as many.
    pub election_ticks: usize,
    /// Ticks between heartbeats.
    pub heartbeat_ticks: usize,
    /// Ask whether an election could be won before disturbing the others.
    pub pre_vote: bool,
    /// Entries in one message to a peer, in bytes.
    pub message_bytes_max: u64,
    /// Append messages on their way to one peer.
    pub inflight_messages_max: usize,
    /// Size of the entries one ready reports as committed.
    pub committed_bytes_max: u64,
    /// The only source of randomness: spreads election timeouts. Give each
    /// member its own.
    pub seed: u64,
}

impl CoreConfig {
    /// etcd's values for this member.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self {
            id,
            election_ticks: 10,
            heartbeat_ticks: 1,
            pre_vote: true,
            message_bytes_max: 1024 * 1024,
            inflight_messages_max: 512,
            committed_bytes_max: 16 * 1024 * 1024,
            seed: id,
        }
    }
}

/// What a member knows when it starts. See [`crate::bootstrap`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InitialState {
    /// The member.
    pub member_id: u64,
    /// Term, vote and committed index.
    pub hard_state: HardState,
    /// Members as of `applied_index`.
    pub conf_state: ConfState,
    /// Everything up to here is in the state machine.
    pub applied_index: u64,
    /// The log starts after this index.
    pub base_index: u64,
    /// Term of `base_index`.
    pub base_term: u64,
    /// The log after `base_index`, without gaps.
    pub entries: Vec<Entry>,
}

impl InitialState {
    /// The last index in the log.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }
}

/// What a member is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Follows a leader, or waits for one. Learners are followers.
    #[default]
    Follower,
    /// Asks whether it could win an election.
    PreCandidate,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

/// Who leads, as far as this member knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// The leader; 0 if there is none.
    pub leader: u64,
    /// What this member is.
    pub role: Role,
    /// The term in which that holds.
    pub term: u64,
}

/// A linearizable read may be answered once this index is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadState {
    /// As given to [`Core::read_index`].
    pub context: u64,
    /// The index.
    pub index: u64,
}

/// What a member wants done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ready {
    /// Counts up; goes back in [`Core::persisted`].
    pub number: u64,
    /// If it changed.
    pub hard_state: Option<HardState>,
    /// Term or vote changed, or there are entries: must be on disk before
    /// `messages_after_persist` go. A new commit index alone may wait.
    pub must_sync: bool,
    /// The leader's snapshot replaces log and state machine up to its index.
    pub snapshot: Option<SnapshotMetadata>,
    /// To be written; may replace a suffix of the log.
    pub entries: Vec<Entry>,
    /// To be sent at once.
    pub messages: Vec<Message>,
    /// To be sent when this and all earlier readies are on disk.
    pub messages_after_persist: Vec<Message>,
    /// To be applied, in order.
    pub committed: Vec<Entry>,
    /// Answers to [`Core::read_index`].
    pub reads: Vec<ReadState>,
    /// If leader, role or term changed.
    pub leadership: Option<Leadership>,
}

/// Why a core was not built: the initial state contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Would break the engine: committed but not in the log.
    #[error("the committed index {commit} lies outside the log ({base_index} to {last_index})")]
    CommitOutsideLog {
        /// From the hard state.
        commit: u64,
        /// The log starts after this index.
        base_index: u64,
        /// The log ends here.
        last_index: u64,
    },
    /// Only what is committed is ever applied.
    #[error(
        "the applied index {applied_index} lies outside the committed log ({base_index} to {commit})"
    )]
    AppliedOutsideLog {
        /// From the state machine.
        applied_index: u64,
        /// The log starts after this index.
        base_index: u64,
        /// From the hard state.
        commit: u64,
    },
    /// The log has a hole, or an entry of unknown type.
    #[error("entry {index} of the log is not what follows its predecessor")]
    BrokenLog {
        /// Where.
        index: u64,
    },
    /// The engine refuses the settings.
    #[error("the raft settings are not valid: {0}")]
    Config(String),
}

/// Why a proposal did not enter the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DroppedError {
    /// There is no leader, or it is handing over. Try again later.
    #[error("there is no leader that takes proposals")]
    NoLeader,
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StepError {
    /// No correct peer sends this.
    #[error("a peer sent a malformed raft message: {0}")]
    Malformed(&'static str),
    /// A response from somebody who is not a member.
    #[error("the sender is not a member of this cluster")]
    UnknownPeer,
    /// A forwarded proposal found no leader.
    #[error(transparent)]
    Dropped(#[from] DroppedError),
    /// The driver has stopped.
    #[error("this member's consensus has stopped")]
    Stopped,
}

/// Why a membership change was not made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfChangeError {
    /// It would leave the cluster without voters, or similar.
    #[error("the membership change is impossible: {0}")]
    Impossible(String),
}

/// The state machine claims to have applied what was never committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("index {applied_index} was reported as applied, but only {commit} is committed")]
pub struct AppliedBeyondCommit {
    /// As reported.
    pub applied_index: u64,
    /// The committed index.
    pub commit: u64,
}
