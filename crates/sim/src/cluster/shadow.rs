//! A copy of what a member's disk must have kept durably; no simulated crash affects it.

use std::collections::BTreeMap;

use portunus_consensus::InitialState;
use portunus_proto::raftpb::{Entry, HardState};

#[derive(Debug, Clone, Copy)]
enum Written {
    Entry {
        index: u64,
        term: u64,
    },
    /// A snapshot of the leader, which replaces all entries before it.
    Snapshot,
}

/// The synced log and the writes since then.
#[derive(Debug, Clone, Default)]
pub(super) struct Shadow {
    pub(super) hard_state: HardState,
    pub(super) last_index: u64,
    terms: BTreeMap<u64, u64>,
    unsynced: Vec<Written>,
}

fn add(terms: &mut BTreeMap<u64, u64>, written: Written) {
    match written {
        Written::Entry { index, term } => {
            terms.split_off(&index);
            terms.insert(index, term);
        }
        Written::Snapshot => terms.clear(),
    }
}

impl Shadow {
    pub(super) fn wrote_entries(&mut self, entries: &[Entry]) {
        let added = entries.iter().map(|entry| Written::Entry {
            index: entry.index,
            term: entry.term,
        });
        self.unsynced.extend(added);
    }

    pub(super) fn wrote_snapshot(&mut self) {
        self.unsynced.push(Written::Snapshot);
    }

    /// Records that all writes are durable.
    pub(super) fn synced(&mut self, hard_state: HardState, last_index: u64) {
        for written in self.unsynced.drain(..) {
            add(&mut self.terms, written);
        }
        self.hard_state = hard_state;
        self.last_index = last_index;
    }

    /// Compares with the state read at a restart, and continues from it.
    pub(super) fn check(&mut self, found: &InitialState) -> Result<(), String> {
        let (synced, found_state) = (self.hard_state, found.hard_state);
        if found_state.term < synced.term || found_state.commit < synced.commit {
            return Err(format!("{found_state:?} instead of {synced:?}"));
        }
        let same_term = found_state.term == synced.term;
        if same_term && synced.vote != 0 && found_state.vote != synced.vote {
            return Err(format!(
                "vote {:x} instead of {:x}",
                found_state.vote, synced.vote
            ));
        }
        let there: BTreeMap<u64, u64> = found
            .entries
            .iter()
            .map(|entry| (entry.index, entry.term))
            .collect();
        let has_all = |terms: &BTreeMap<u64, u64>| {
            let mut beyond = terms.range(found.base_index + 1..);
            beyond.all(|(index, term)| there.get(index) == Some(term))
        };
        let mut expected = self.terms.clone();
        let mut is_kept = has_all(&expected);
        for written in &self.unsynced {
            if is_kept {
                break;
            }
            add(&mut expected, *written);
            is_kept = has_all(&expected);
        }
        if !is_kept {
            let missing = self.terms.range(found.base_index + 1..);
            let missing = missing.filter(|(index, term)| there.get(index) != Some(term));
            let missing: Vec<_> = missing.take(3).collect();
            return Err(format!("entries (index, term) {missing:?}"));
        }
        self.terms = there;
        self.unsynced.clear();
        self.last_index = found.last_index();
        // The commit index may come from the state machine instead of the log.
        self.hard_state = HardState {
            commit: synced.commit,
            ..found_state
        };
        Ok(())
    }
}
