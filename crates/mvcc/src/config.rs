//! Settings of the store and their defaults.

use std::time::Duration;

/// The thread that commits changes to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Commits {
    /// A thread of the store, after each interval.
    #[default]
    OnThread,
    /// The thread that calls [`Store::commit`](crate::Store::commit) or waits for a commit, so
    /// that a simulator decides what a crash loses.
    OnCall,
}

/// Settings of one store. None of them changes the result of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The thread that commits.
    pub commits: Commits,
    /// Longest time an applied entry waits for its commit.
    pub commit_interval: Duration,
    /// Records that trigger a commit before the interval is over.
    pub commit_records: usize,
    /// Applying waits while this many records are queued.
    pub pending_records_max: usize,
    /// Applying waits while the queued records hold this many bytes.
    pub pending_bytes_max: usize,
    /// Bytes of values kept in memory; 0 keeps all. Uncommitted values are always kept.
    pub resident_value_bytes_max: usize,
    /// Changes one [`compaction_step`](crate::Store::compaction_step) examines.
    pub compaction_batch_limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            commits: Commits::OnThread,
            commit_interval: Duration::from_millis(100),
            commit_records: 10_000,
            pending_records_max: 200_000,
            pending_bytes_max: 64 << 20,
            resident_value_bytes_max: 0,
            compaction_batch_limit: 1000,
        }
    }
}
