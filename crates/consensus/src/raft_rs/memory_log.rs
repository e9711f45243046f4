//! The log as the engine uses it: entries since the last compaction, in memory.
//!
//! Applied entries are kept for peers that are behind, but no more of them than
//! [`KEPT_BYTES_MAX`]; a peer further behind is sent a snapshot.
//!
//! Entries are appended before they are on disk; the engine knows the persisted index and never
//! commits beyond it. Nothing here is durable: the driver writes the same entries to the
//! write-ahead log.

use std::collections::VecDeque;

use raft::{
    Error, GetEntriesContext, RaftState, Result, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot, SnapshotMetadata},
};

/// The most bytes of an entry on the wire besides its payload.
const ENTRY_HEAD_BYTES: u64 = 32;

/// Payload of applied entries kept for peers that are behind.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Entries after `base_index`, the last discarded index.
pub(super) struct MemoryLog {
    hard_state: HardState,
    conf_state: ConfState,
    base_index: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
    /// Payload of the entries.
    entry_bytes: usize,
    /// First index and term of each run of entries with the same term, oldest first, among
    /// discarded entries that the log on disk may still be compacted to.
    past_terms: VecDeque<(u64, u64)>,
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
            entry_bytes: payload_bytes(&entries),
            entries,
            past_terms: VecDeque::from([(base_index, base_term)]),
            applied_index: base_index,
        }
    }

    /// Sets the last index in the state machine, from which on a snapshot can be sent.
    pub(super) fn set_applied(&mut self, index: u64) {
        self.applied_index = index;
        let mut bytes_left = self.entry_bytes;
        let applied = self.entries.iter().take_while(|entry| entry.index < index);
        let gone = applied.take_while(|entry| {
            let is_too_much = bytes_left > KEPT_BYTES_MAX;
            bytes_left -= entry.data.len();
            is_too_much
        });
        if let Some(last_gone) = gone.last().map(|entry| entry.index) {
            self.let_go(last_gone);
        }
    }

    /// Returns the term of the entry at this index, whether it is in memory or was discarded
    /// since the last compaction.
    pub(super) fn known_term(&self, index: u64) -> Option<u64> {
        if index > self.base_index {
            return self.term(index).ok();
        }
        let began = |(first_index, _): &(u64, u64)| *first_index <= index;
        let place = self.past_terms.partition_point(began).checked_sub(1)?;
        self.past_terms.get(place).map(|(_, term)| *term)
    }

    /// Sets the members after a membership change.
    pub(super) fn set_members(&mut self, conf_state: ConfState) {
        self.conf_state = conf_state;
    }

    /// Replaces the whole log by a snapshot.
    pub(super) fn restart_from(&mut self, snapshot: &SnapshotMetadata) {
        self.entries = VecDeque::new();
        self.entry_bytes = 0;
        self.past_terms = VecDeque::from([(snapshot.index, snapshot.term)]);
        self.base_index = snapshot.index;
        self.base_term = snapshot.term;
        // Until it is installed there is no snapshot to send.
        self.applied_index = 0;
        self.conf_state = snapshot.get_conf_state().clone();
    }

    pub(super) fn base_index(&self) -> u64 {
        self.base_index
    }

    pub(super) fn last(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }

    /// Appends entries, which may replace a suffix.
    pub(super) fn append(&mut self, entries: Vec<Entry>) {
        if let Some(first) = entries.first() {
            let kept = first.index.saturating_sub(self.base_index + 1);
            let kept = usize::try_from(kept).unwrap_or(usize::MAX);
            if kept < self.entries.len() {
                self.entry_bytes -= payload_bytes(self.entries.range(kept..));
                self.entries.truncate(kept);
            }
        }
        self.entry_bytes += payload_bytes(&entries);
        self.entries.extend(entries);
    }

    /// Discards all entries up to `index`, and their terms.
    pub(super) fn compact(&mut self, index: u64) {
        self.let_go(index);
        while let Some((next_begins, _)) = self.past_terms.get(1)
            && *next_begins <= index
        {
            self.past_terms.pop_front();
        }
        if let Some((known_from, _)) = self.past_terms.front_mut() {
            *known_from = index.min(self.base_index).max(*known_from);
        }
    }

    /// Discards the entries up to `index`, if they are in the log.
    fn let_go(&mut self, index: u64) {
        let Ok(term) = self.term(index) else { return };
        let gone = usize::try_from(index - self.base_index).unwrap_or(usize::MAX);
        for entry in self.entries.drain(..gone.min(self.entries.len())) {
            self.entry_bytes -= entry.data.len();
            if self.past_terms.back().map(|(_, term)| *term) != Some(entry.term) {
                self.past_terms.push_back((entry.index, entry.term));
            }
        }
        self.base_index = index;
        self.base_term = term;
        // Otherwise the memory of a burst is never freed.
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

fn payload_bytes<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> usize {
    entries.into_iter().map(|entry| entry.data.len()).sum()
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
            // One entry is always returned, however large, or there would be no progress.
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

    /// Returns only the metadata; the server creates the content when it is sent, and it may be
    /// newer.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry {
            index,
            term,
            data: vec![0; KEPT_BYTES_MAX / 4].into(),
            ..Entry::default()
        }
    }

    #[test]
    fn applied_entries_beyond_the_limit_are_dropped_and_their_terms_kept_until_compaction() {
        let mut log = MemoryLog::new(
            HardState::default(),
            ConfState::default(),
            5,
            1,
            VecDeque::new(),
        );
        log.append((6..=20).map(|index| entry(index, index / 8 + 1)).collect());
        assert_eq!(log.base_index(), 5, "nothing is applied");
        log.set_applied(12);
        assert_eq!(log.base_index(), 11, "what is applied last stays");
        log.set_applied(20);
        assert_eq!(log.base_index(), 16);
        assert!(log.term(10).is_err());
        let terms: Vec<_> = (5..=21).map(|index| log.known_term(index)).collect();
        let expected = (5..=20).map(|index| Some(index / 8 + 1)).chain([None]);
        assert_eq!(terms, expected.collect::<Vec<_>>());
        log.compact(9);
        assert_eq!((log.base_index(), log.known_term(9)), (16, Some(2)));
        assert_eq!(log.known_term(8), None);
    }

    #[test]
    fn replaced_entries_are_not_counted() {
        let mut log = MemoryLog::new(
            HardState::default(),
            ConfState::default(),
            0,
            0,
            VecDeque::new(),
        );
        log.append((1..=8).map(|index| entry(index, 1)).collect());
        log.append(vec![entry(3, 2)]);
        log.set_applied(3);
        assert_eq!((log.base_index(), log.last()), (0, 3));
    }
}
