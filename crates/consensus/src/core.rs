//! One member's raft, as a state machine without threads, clock, disk or network.
//!
//! Everything that happens to a member goes in through a method; its work comes out of
//! [`Core::ready`]. The driver runs it with threads, a simulator can run many in one loop.
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
//! Rules for the caller:
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
//! It never retries, never waits and never interprets an entry.

use portunus_gates::cluster::MemberId;
use portunus_proto::raftpb::{ConfState, Entry, HardState, Message, SnapshotMetadata};
use portunus_proto::{LogIndex, Term};
use thiserror::Error;

pub use crate::raft_rs::Core;

/// The raft settings of a member. The defaults are etcd's.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    /// The id of the member; not 0.
    pub id: u64,
    /// Ticks without a leader before an election; at most twice as many.
    pub election_ticks: usize,
    /// Ticks between heartbeats.
    pub heartbeat_ticks: usize,
    /// Run a pre-vote, so that an election that cannot be won does not disturb the others.
    pub pre_vote: bool,
    /// The bytes of entries in one message to a peer.
    pub message_bytes_max: u64,
    /// Append messages in flight to one peer.
    pub inflight_messages_max: usize,
    /// The bytes of entries that one ready reports as committed.
    pub committed_bytes_max: u64,
    /// The only source of randomness: spreads election timeouts. Must differ between members.
    pub seed: u64,
}

impl CoreConfig {
    /// Returns etcd's values for this member.
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

/// The state of a member when it starts. See [`crate::bootstrap`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InitialState {
    /// The id of the member.
    pub member_id: u64,
    /// Term, vote and committed index.
    pub hard_state: HardState,
    /// The members as of `applied_index`.
    pub conf_state: ConfState,
    /// The last index in the state machine.
    pub applied_index: u64,
    /// The log starts after this index.
    pub base_index: u64,
    /// The term of `base_index`.
    pub base_term: u64,
    /// The log after `base_index`, without gaps.
    pub entries: Vec<Entry>,
}

impl InitialState {
    /// Returns the last index in the log.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }
}

/// The raft role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Follows a leader, or waits for one. Learners are followers.
    #[default]
    Follower,
    /// Requests pre-votes.
    PreCandidate,
    /// Requests votes.
    Candidate,
    /// Leads the cluster.
    Leader,
}

/// The leader, as far as this member knows, and this member's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// The leader, or [`MemberId::NONE`].
    pub leader: MemberId,
    /// The role of this member.
    pub role: Role,
    /// The term in which that holds.
    pub term: Term,
}

/// The result of a read index request: a linearizable read may be served once `index` is
/// applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadState {
    /// The context given to [`Core::read_index`].
    pub context: u64,
    /// The read index.
    pub index: LogIndex,
}

/// The work of the caller, see the [module](self).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ready {
    /// Increases with every ready; reported by [`Core::persisted`].
    pub number: u64,
    /// Term, vote and commit index, if they changed.
    pub hard_state: Option<HardState>,
    /// Term or vote changed, or there are entries: must be on disk before
    /// `messages_after_persist` are sent. A new commit index alone may wait.
    pub must_sync: bool,
    /// The leader's snapshot, which replaces log and state machine up to its index.
    pub snapshot: Option<SnapshotMetadata>,
    /// Entries to write; they may replace a suffix of the log.
    pub entries: Vec<Entry>,
    /// Messages to send at once.
    pub messages: Vec<Message>,
    /// Messages to send when this and all earlier readies are on disk.
    pub messages_after_persist: Vec<Message>,
    /// Entries to apply, in order.
    pub committed: Vec<Entry>,
    /// Results of [`Core::read_index`].
    pub reads: Vec<ReadState>,
    /// Leader, role and term, if one changed.
    pub leadership: Option<Leadership>,
}

/// Why a core was not created: the initial state is inconsistent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The commit index is outside the log.
    #[error("the committed index {commit} lies outside the log ({base_index} to {last_index})")]
    CommitOutsideLog {
        /// The commit index of the hard state.
        commit: u64,
        /// The log starts after this index.
        base_index: u64,
        /// The last index in the log.
        last_index: u64,
    },
    /// The applied index is outside the committed log.
    #[error(
        "the applied index {applied_index} lies outside the committed log ({base_index} to {commit})"
    )]
    AppliedOutsideLog {
        /// The applied index of the state machine.
        applied_index: u64,
        /// The log starts after this index.
        base_index: u64,
        /// The commit index of the hard state.
        commit: u64,
    },
    /// The log has a gap, or an entry of unknown type.
    #[error("entry {index} of the log is not what follows its predecessor")]
    BrokenLog {
        /// The index where the entry should be.
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

/// The log of this member lacks entries that it has acknowledged, such as after an earlier state of
/// its disk was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the leader sent commit index {commit}, but the log ends at {last_index}: was the raft log \
     corrupted, truncated, or lost? Remove this member, and add it again with an empty data directory"
)]
pub struct LogLost {
    /// The commit index of the leader's heartbeat, which this member has acknowledged.
    pub commit: u64,
    /// The last index of this member's log.
    pub last_index: u64,
}

/// Why a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StepError {
    /// No correct peer sends this message.
    #[error("a peer sent a malformed raft message: {0}")]
    Malformed(&'static str),
    /// The leader has committed what this member acknowledged and does not have. The member must
    /// stop: it could elect a leader without committed entries.
    #[error(transparent)]
    LogLost(#[from] LogLost),
    /// The sender of a response is not a member.
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

/// The state machine reported an index as applied that is not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("index {applied_index} was reported as applied, but only {commit} is committed")]
pub struct AppliedBeyondCommit {
    /// The reported index.
    pub applied_index: u64,
    /// The committed index.
    pub commit: u64,
}
