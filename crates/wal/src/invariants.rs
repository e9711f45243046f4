//! The rules every raft log obeys, checked when writing and when reading.
//!
//! At a write they keep a caller's error from making the log unreadable. At a
//! read they detect damage that the checksum does not, since it covers a
//! record's data but not its type.

use portunus_proto::{
    raftpb::{Entry, HardState},
    walpb::Snapshot,
};
use thiserror::Error;

use crate::payload::ENTRY_TYPE_MAX;

/// A record that a correct raft log cannot have at this position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogRuleViolation {
    /// The entry type is not one of raft's three.
    #[error("entry {index} has unknown type {entry_type}")]
    UnknownEntryType {
        /// Index of the entry.
        index: u64,
        /// Type of the entry.
        entry_type: i32,
    },
    /// Term or index is 0; both start at 1.
    #[error("entry {index} has term {term}; both must be at least 1")]
    EntryWithoutPosition {
        /// Index of the entry.
        index: u64,
        /// Term of the entry.
        term: u64,
    },
    /// The entry leaves a gap.
    #[error("entry {index} follows index {last_index}: entries in between are missing")]
    EntryGap {
        /// Index of the entry.
        index: u64,
        /// Last index before it.
        last_index: u64,
    },
    /// The entry would replace a committed one.
    #[error("entry {index} would replace one that is committed (up to {commit})")]
    CommittedEntryReplaced {
        /// Index of the entry.
        index: u64,
        /// Committed index at that point.
        commit: u64,
    },
    /// The term is lower than that of the previous entry.
    #[error("entry {index} has term {term} after an entry of term {previous_term}")]
    EntryTermDecreased {
        /// Index of the entry.
        index: u64,
        /// Term of the entry.
        term: u64,
        /// Term of the entry before it.
        previous_term: u64,
    },
    /// The hard state has a lower term or commit index than the previous one.
    #[error(
        "hard state (term {term}, commit {commit}) goes back from (term {previous_term}, commit {previous_commit})"
    )]
    StateWentBack {
        /// Term of the state.
        term: u64,
        /// Committed index of the state.
        commit: u64,
        /// Term of the state before it.
        previous_term: u64,
        /// Committed index of the state before it.
        previous_commit: u64,
    },
    /// The vote changed within a term.
    #[error("vote in term {term} changed from {previous_vote:x} to {vote:x}")]
    VoteChanged {
        /// The term.
        term: u64,
        /// The new vote.
        vote: u64,
        /// The vote before it.
        previous_vote: u64,
    },
    /// The snapshot has no conf state, which a member needs to start from it.
    #[error("the snapshot at index {index} has no conf state")]
    SnapshotWithoutMembers {
        /// Index of the snapshot.
        index: u64,
    },
    /// The commit index is beyond the end of the log.
    #[error("commit index {commit} lies beyond the last index {last_index}")]
    CommitBeyondLog {
        /// Committed index of the state.
        commit: u64,
        /// Last index of the log at that point.
        last_index: u64,
    },
}

/// The end of the log, with the state needed to check the next record.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LogPosition {
    pub(crate) last_index: u64,
    /// Term of the entry at `last_index`; 0 if unknown.
    pub(crate) last_term: u64,
    pub(crate) state: HardState,
}

impl LogPosition {
    pub(crate) fn admit_entry(&mut self, entry: &Entry) -> Result<(), LogRuleViolation> {
        let &Entry { term, index, .. } = entry;
        if !(0..=ENTRY_TYPE_MAX).contains(&entry.r#type) {
            return Err(LogRuleViolation::UnknownEntryType {
                index,
                entry_type: entry.r#type,
            });
        }
        if term == 0 || index == 0 {
            return Err(LogRuleViolation::EntryWithoutPosition { index, term });
        }
        // `index - 1` cannot wrap: zero was refused above.
        if index - 1 > self.last_index {
            return Err(LogRuleViolation::EntryGap {
                index,
                last_index: self.last_index,
            });
        }
        if index <= self.state.commit {
            return Err(LogRuleViolation::CommittedEntryReplaced {
                index,
                commit: self.state.commit,
            });
        }
        // An entry that replaces a suffix may have a lower term; an appended one may not.
        if index - 1 == self.last_index && term < self.last_term {
            return Err(LogRuleViolation::EntryTermDecreased {
                index,
                term,
                previous_term: self.last_term,
            });
        }
        self.last_index = index;
        self.last_term = term;
        Ok(())
    }

    pub(crate) fn admit_state(&mut self, state: &HardState) -> Result<(), LogRuleViolation> {
        let previous = self.state;
        if state.term < previous.term || state.commit < previous.commit {
            return Err(LogRuleViolation::StateWentBack {
                term: state.term,
                commit: state.commit,
                previous_term: previous.term,
                previous_commit: previous.commit,
            });
        }
        let already_voted = state.term == previous.term && previous.vote != 0;
        if already_voted && state.vote != previous.vote {
            return Err(LogRuleViolation::VoteChanged {
                term: state.term,
                vote: state.vote,
                previous_vote: previous.vote,
            });
        }
        if state.commit > self.last_index {
            return Err(LogRuleViolation::CommitBeyondLog {
                commit: state.commit,
                last_index: self.last_index,
            });
        }
        self.state = *state;
        Ok(())
    }

    /// Accepts a snapshot; one ahead of the log replaces the entries it covers.
    pub(crate) fn admit_snapshot(&mut self, snapshot: &Snapshot) {
        if snapshot.index > self.last_index {
            self.last_index = snapshot.index;
            self.last_term = snapshot.term;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(term: u64, index: u64) -> Entry {
        Entry {
            term,
            index,
            ..Default::default()
        }
    }

    fn state(term: u64, vote: u64, commit: u64) -> HardState {
        HardState { term, vote, commit }
    }

    /// Entries 1 to 5 of term 2, committed up to 3.
    fn position() -> LogPosition {
        LogPosition {
            last_index: 5,
            last_term: 2,
            state: state(2, 7, 3),
        }
    }

    #[test]
    fn records_of_a_correct_log_are_admitted() {
        let mut position = position();
        position.admit_entry(&entry(2, 6)).unwrap();
        position.admit_entry(&entry(3, 7)).unwrap();
        position.admit_state(&state(3, 0, 5)).unwrap();
        position.admit_state(&state(3, 9, 7)).unwrap();
        position.admit_snapshot(&Snapshot {
            index: 20,
            term: 4,
            conf_state: None,
        });
        position.admit_state(&state(4, 0, 20)).unwrap();
        position.admit_entry(&entry(4, 21)).unwrap();
        assert_eq!((position.last_index, position.last_term), (21, 4));
    }

    #[test]
    fn uncommitted_suffix_may_be_replaced_by_an_older_term() {
        let mut position = position();
        position.admit_entry(&entry(1, 4)).unwrap();
        assert_eq!(position.last_index, 4);
        assert!(position.admit_entry(&entry(1, 6)).is_err(), "now a gap");
    }

    #[test]
    fn each_violation_is_reported_by_kind() {
        use LogRuleViolation::*;
        let entry_error = |e: Entry| position().admit_entry(&e).unwrap_err();
        let state_error = |s: HardState| position().admit_state(&s).unwrap_err();
        let typed = |r#type| Entry {
            r#type,
            ..entry(2, 6)
        };
        assert!(matches!(entry_error(typed(3)), UnknownEntryType { .. }));
        assert!(matches!(entry_error(typed(-1)), UnknownEntryType { .. }));
        assert!(matches!(
            entry_error(entry(0, 6)),
            EntryWithoutPosition { .. }
        ));
        assert!(matches!(
            entry_error(entry(2, 0)),
            EntryWithoutPosition { .. }
        ));
        assert!(matches!(entry_error(entry(2, 7)), EntryGap { .. }));
        assert!(matches!(
            entry_error(entry(2, 3)),
            CommittedEntryReplaced { .. }
        ));
        assert!(matches!(
            entry_error(entry(1, 6)),
            EntryTermDecreased { .. }
        ));
        assert!(matches!(state_error(state(1, 7, 3)), StateWentBack { .. }));
        assert!(matches!(state_error(state(2, 7, 2)), StateWentBack { .. }));
        assert!(matches!(state_error(state(2, 8, 3)), VoteChanged { .. }));
        assert!(matches!(
            state_error(state(2, 7, 6)),
            CommitBeyondLog { .. }
        ));
    }
}
