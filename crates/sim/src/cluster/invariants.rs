//! Checks the invariants over all members during a run.
//!
//! | invariant | check |
//! | --- | --- |
//! | one leader per term | [`Invariants::leads`] |
//! | a leader has every entry committed in earlier terms | [`Invariants::leads`] |
//! | same index and term, same entry, same predecessor | [`Invariants::in_log`] |
//! | one entry per committed index, for all members and all time | [`Invariants::commits`], [`Invariants::applies`] |
//! | same state, members and features at the same index | [`Invariants::applies`] |
//! | an acknowledged proposal is never lost | [`Invariants::commits`], the end of a run |
//! | a read sees every entry committed before it began | [`Invariants::answers`] |
//! | one vote per member and term | [`Invariants::votes`] |
//!
//! It never changes a member.

use std::collections::BTreeMap;
use std::sync::Arc;

use portunus_proto::raftpb::{ConfState, Entry};

use super::gates::Gates;
use super::state::{Image, digest};
use super::violation::Violation;

/// The entry of a log at an index and term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    digest: u64,
    previous_term: u64,
}

/// The state after an index; equal on all members.
#[derive(Debug, Clone, PartialEq)]
struct After {
    state: u64,
    conf_state: ConfState,
    gates: Arc<Gates>,
}

#[derive(Default)]
pub(super) struct Invariants {
    leaders: BTreeMap<u64, u64>,
    votes: BTreeMap<(u64, u64), u64>,
    /// Entries by index and term.
    logged: BTreeMap<(u64, u64), Identity>,
    /// Per index from 1: the entry's term, and a term in which it was known to be committed.
    committed: Vec<(u64, u64)>,
    after: BTreeMap<u64, After>,
    /// The index of each acknowledged proposal.
    pub(super) acknowledged: BTreeMap<u64, u64>,
    reads: BTreeMap<u64, u64>,
    pub(super) reads_answered: u64,
    pub(super) switches: u64,
}

impl Invariants {
    /// Returns the last index known to be committed.
    pub(super) fn commit(&self) -> u64 {
        self.committed.len() as u64
    }

    /// Returns the term of a committed entry.
    pub(super) fn committed_term(&self, index: u64) -> Option<u64> {
        let place = usize::try_from(index.checked_sub(1)?).ok()?;
        self.committed.get(place).map(|(term, _)| *term)
    }

    /// Checks a new leader; `term_of` reads its log.
    pub(super) fn leads(
        &mut self,
        id: u64,
        term: u64,
        term_of: impl Fn(u64) -> Option<u64>,
        log_starts_after: u64,
    ) -> Result<(), Violation> {
        let leader = *self.leaders.entry(term).or_insert(id);
        if leader != id {
            return Err(Violation::TwoLeaders {
                term,
                one: leader,
                other: id,
            });
        }
        let known = (1..).zip(&self.committed);
        for (index, (entry_term, committed_in)) in known {
            let must_have = *committed_in < term && index > log_starts_after;
            if must_have && term_of(index) != Some(*entry_term) {
                return Err(Violation::LeaderIncomplete { id, term, index });
            }
        }
        Ok(())
    }

    /// Checks entries that are written or sent, after an entry of `previous_term`.
    pub(super) fn in_log(
        &mut self,
        id: u64,
        entries: &[Entry],
        mut previous_term: Option<u64>,
    ) -> Result<(), Violation> {
        for entry in entries {
            let previous = previous_term.replace(entry.term);
            let Some(previous_term) = previous else {
                continue;
            };
            let identity = Identity {
                digest: digest(0, entry),
                previous_term,
            };
            let place = (entry.index, entry.term);
            if *self.logged.entry(place).or_insert(identity) != identity {
                return Err(Violation::LogsDiffer {
                    id,
                    index: entry.index,
                    term: entry.term,
                });
            }
        }
        Ok(())
    }

    /// Records and checks the indexes `known` that a member in `term` knows to be committed.
    pub(super) fn commits(
        &mut self,
        id: u64,
        known: std::ops::RangeInclusive<u64>,
        term: u64,
        term_of: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), Violation> {
        for index in known {
            // Entries covered by a snapshot are checked when it is installed.
            let Some(entry_term) = term_of(index) else {
                continue;
            };
            match self.committed_term(index) {
                Some(known) if known != entry_term => {
                    return Err(Violation::CommittedTwice { id, index });
                }
                Some(_) => {}
                None if index == self.commit() + 1 => self.committed.push((entry_term, term)),
                None => return Err(Violation::CommitGap { id, index }),
            }
        }
        Ok(())
    }

    /// Checks the state of a member after an applied entry or snapshot.
    pub(super) fn applies(&mut self, id: u64, image: &Image) -> Result<(), Violation> {
        let index = image.applied_index;
        if index == 0 {
            return Ok(());
        }
        if index > self.commit() || self.committed_term(index) != Some(image.applied_term) {
            return Err(Violation::AppliedUncommitted { id, index });
        }
        let reached = After {
            state: image.state,
            conf_state: image.conf_state.clone(),
            gates: Arc::clone(&image.gates),
        };
        self.count_switches(index, &reached.gates);
        let known = self.after.entry(index).or_insert_with(|| reached.clone());
        if known.gates != reached.gates {
            return Err(Violation::FeaturesDiffer {
                id,
                index,
                one: format!("{:?}", known.gates),
                other: format!("{:?}", reached.gates),
            });
        }
        if known.state != reached.state {
            return Err(Violation::StatesDiffer { id, index });
        }
        if known.conf_state != reached.conf_state {
            return Err(Violation::MembersDiffer {
                id,
                index,
                one: known.conf_state.clone(),
                other: reached.conf_state,
            });
        }
        Ok(())
    }

    /// Counts each index that changes a feature value once.
    fn count_switches(&mut self, index: u64, gates: &Arc<Gates>) {
        let Some(before) = self.after.get(&(index - 1)) else {
            return;
        };
        if self.after.contains_key(&index) || Arc::ptr_eq(&before.gates, gates) {
            return;
        }
        fn values(gates: &Gates) -> Option<&BTreeMap<String, bool>> {
            gates.params.as_ref().map(|params| &params.features)
        }
        self.switches += u64::from(values(&before.gates) != values(gates));
    }

    /// Records a proposal that was acknowledged to its client.
    pub(super) fn acknowledges(&mut self, proposal: u64, index: u64) {
        self.acknowledged.insert(proposal, index);
    }

    /// Records the commit index at the start of a read.
    pub(super) fn begins_read(&mut self, context: u64) {
        self.reads.insert(context, self.commit());
    }

    /// Checks the index of an answered read.
    pub(super) fn answers(&mut self, id: u64, context: u64, index: u64) -> Result<(), Violation> {
        self.reads_answered += 1;
        let floor = self.reads.get(&context).copied().unwrap_or(u64::MAX);
        if index < floor {
            return Err(Violation::StaleRead { id, index, floor });
        }
        Ok(())
    }

    /// Checks a sent vote.
    pub(super) fn votes(&mut self, id: u64, term: u64, candidate: u64) -> Result<(), Violation> {
        let vote = *self.votes.entry((id, term)).or_insert(candidate);
        if vote != candidate {
            return Err(Violation::TwoVotes {
                id,
                term,
                one: vote,
                other: candidate,
            });
        }
        Ok(())
    }
}
