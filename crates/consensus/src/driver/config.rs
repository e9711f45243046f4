//! The driver's configuration: limits, the log it writes, and the hooks it calls.

use std::time::Duration;

use portunus_proto::{
    raftpb::{Entry, HardState, Message},
    walpb::Snapshot,
};
use portunus_wal::{ReleaseError, Wal, WriteError};

use super::errors::FatalError;
use crate::core::Leadership;

/// Settings of one member. The defaults are etcd's where etcd has them.
#[derive(Debug, Clone)]
pub struct Config {
    /// Time between ticks: the heartbeat interval.
    pub tick_interval: Duration,
    /// Ticks without a leader before an election; at most twice as many.
    pub election_ticks: usize,
    /// Run a pre-vote, so that an election that cannot be won does not disturb the others.
    pub pre_vote: bool,
    /// A sole voter leads at once, without waiting for an election timeout.
    pub leads_at_once_if_alone: bool,
    /// Proposals that may wait to enter the log.
    pub proposal_queue_entries_max: usize,
    /// Their size in bytes.
    pub proposal_queue_bytes_max: usize,
    /// Committed entries that may wait to be applied. Beyond this nothing more is written until
    /// the state machine catches up.
    pub apply_backlog_entries_max: usize,
    /// Entries kept in memory behind a compaction, for peers that are behind.
    pub catch_up_entries: u64,
    /// Spreads election timeouts, and makes the contexts of reads unique. Must differ between
    /// members and between starts.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tick_interval: Duration::from_millis(100),
            election_ticks: 10,
            pre_vote: true,
            leads_at_once_if_alone: true,
            proposal_queue_entries_max: 20_000,
            proposal_queue_bytes_max: 256 * 1024 * 1024,
            apply_backlog_entries_max: 50_000,
            catch_up_entries: 5_000,
            seed: 0,
        }
    }
}

/// The callbacks of the driver. It holds its lock while it calls them: none of these may block,
/// or call anything of the [`Handle`](crate::Handle) besides `submit`, `propose`,
/// `propose_conf_change`, `read_index` and `status`. A hook that keeps a handle keeps the
/// member alive.
pub struct Hooks {
    /// Sends messages to peers.
    pub peers: Box<dyn PeerSink>,
    /// Called when leader, role or term changed.
    pub on_leadership: Box<dyn Fn(Leadership) + Send + Sync>,
    /// Called at most once, when the member cannot continue. Without the lock.
    pub on_fatal: Box<dyn FnOnce(FatalError) + Send>,
}

/// Sends messages to other members. They may be lost, but should not be reordered: that costs a
/// round trip.
pub trait PeerSink: Send + Sync {
    /// Queues messages for the members in their `to` fields. Never blocks.
    fn send(&self, messages: Vec<Message>);
}

/// The sink of a cluster of one, which has no peers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPeers;

impl PeerSink for NoPeers {
    fn send(&self, _: Vec<Message>) {}
}

/// The log on disk, as the driver uses it. Tests replace it by a failing one.
pub trait LogWriter: Send {
    /// Adds to the next write.
    ///
    /// # Errors
    /// Any error is final.
    fn append(
        &mut self,
        hard_state: Option<&HardState>,
        entries: &[Entry],
    ) -> Result<(), WriteError>;

    /// Writes what was added and makes it durable.
    ///
    /// # Errors
    /// Any error is final.
    fn sync(&mut self) -> Result<(), WriteError>;

    /// Records, durably, that everything up to the snapshot is durable in the backend.
    ///
    /// # Errors
    /// Any error is final.
    fn save_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), WriteError>;

    /// Removes the segments that are not needed to start at this snapshot.
    ///
    /// # Errors
    /// If a file could not be removed; the log stays usable.
    fn release_to(&mut self, index: u64) -> Result<usize, ReleaseError>;
}

impl LogWriter for Wal {
    fn append(
        &mut self,
        hard_state: Option<&HardState>,
        entries: &[Entry],
    ) -> Result<(), WriteError> {
        self.append(hard_state, entries).map(drop)
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.sync()
    }

    fn save_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), WriteError> {
        self.save_snapshot(snapshot)
    }

    fn release_to(&mut self, index: u64) -> Result<usize, ReleaseError> {
        self.release_to(index)
    }
}
