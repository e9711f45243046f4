//! The log as the engine sees it: every entry since the last compaction, in memory.
//!
//! Entries come in before they are on disk; the engine knows how far the disk
//! is and never commits beyond it. Nothing here is durable: that is the
//! write-ahead log's part, which the driver feeds with the same entries.

use std::collections::VecDeque;

use raft::{
    Error, GetEntriesContext, RaftState, Result, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot, SnapshotMetadata},
};

/// What an entry costs on the wire besides its payload, at most.
const ENTRY_HEAD_BYTES: u64 = 32;

/// Entries after `base_index`, which is the last one that was let go.
pub(super) struct MemoryLog {
    hard_state: HardState,
    conf_state: ConfState,
    base_index: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
    applied_index: u64,
}

impl MemoryLog {
    pub(super) fn new(
        hard_state: HardState,
        conf_state: ConfState,
        base_index: u64,
        base_term: u64,
        entries: VecDeque<Entry>,
    ) -> Self {
        Self {
            hard_state,
            conf_state,
            base_index,
            base_term,
            entries,
            applied_index: base_index,
        }
    }

    /// Everything up to `index` is in the state machine, so a peer can have a snapshot of
    /// it, or of something later.
    pub(super) fn set_applied(&mut self, index: u64) {
        self.applied_index = index;
    }

    /// The members after a change of membership.
    pub(super) fn set_members(&mut self, conf_state: ConfState) {
        self.conf_state = conf_state;
    }

    /// A snapshot takes the place of everything that was here.
    pub(super) fn restart_from(&mut self, snapshot: &SnapshotMetadata) {
        self.entries = VecDeque::new();
        self.base_index = snapshot.index;
        self.base_term = snapshot.term;
        // Until it is installed there is nothing to give away.
        self.applied_index = 0;
        self.conf_state = snapshot.get_conf_state().clone();
    }

    pub(super) fn base_index(&self) -> u64 {
        self.base_index
    }

    pub(super) fn last(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }

    /// Takes entries that follow on, or that replace a suffix.
    pub(super) fn append(&mut self, entries: Vec<Entry>) {
        if let Some(first) = entries.first() {
            let kept = first.index.saturating_sub(self.base_index + 1);
            self.entries
                .truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        }
        self.entries.extend(entries);
    }

    /// Lets go of everything up to `index`, which must be in the log.
    pub(super) fn compact(&mut self, index: u64) {
        let Ok(term) = self.term(index) else { return };
        let gone = usize::try_from(index - self.base_index).unwrap_or(usize::MAX);
        self.entries.drain(..gone.min(self.entries.len()));
        self.base_index = index;
        self.base_term = term;
        // Or the memory of a burst is never given back.
        if self.entries.capacity() > 4 * self.entries.len().max(1024) {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    fn position(&self, index: u64) -> Result<usize> {
        if index <= self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        usize::try_from(index - self.base_index - 1)
            .map_err(|_| Error::Store(StorageError::Unavailable))
    }
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(
            self.hard_state.clone(),
            self.conf_state.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        let (low, high) = (self.position(low)?, self.position(high)?);
        if high > self.entries.len() || low > high {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let mut found = Vec::new();
        for entry in self.entries.range(low..high) {
            bytes += entry.data.len() as u64 + ENTRY_HEAD_BYTES;
            // One entry always goes, however large, or nothing would move on.
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.base_index {
            return Ok(self.base_term);
        }
        self.entries
            .get(self.position(index)?)
            .map(|entry| entry.term)
            .ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base_index + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    /// Only what it will be at least; the content is made by the server when it is sent,
    /// and may be newer.
    fn snapshot(&self, request_index: u64, _: u64) -> Result<Snapshot> {
        let index = self.applied_index;
        let unavailable = Error::Store(StorageError::SnapshotTemporarilyUnavailable);
        if index == 0 || index < request_index {
            return Err(unavailable);
        }
        let metadata = SnapshotMetadata {
            conf_state: Some(self.conf_state.clone()).into(),
            index,
            term: self.term(index).map_err(|_| unavailable)?,
            ..Default::default()
        };
        Ok(Snapshot {
            metadata: Some(metadata).into(),
            ..Default::default()
        })
    }
}
