//! Sees everything that happens in a run and remembers what must stay true.
//!
//! | what | where |
//! | --- | --- |
//! | one leader per term | [`Witness::leads`] |
//! | a leader has everything committed in earlier terms | [`Witness::leads`] |
//! | same index and term, same entry, same predecessor | [`Witness::in_log`] |
//! | one entry per committed index, for all members and all time | [`Witness::commits`], [`Witness::applies`] |
//! | same state, members and features at the same index | [`Witness::applies`] |
//! | what was acknowledged is never lost | [`Witness::commits`], the end of a run |
//! | a read sees everything committed before it began | [`Witness::answers`] |
//! | one vote per member and term | [`Witness::votes`] |
//!
//! It never touches a member.

use std::collections::BTreeMap;
use std::sync::Arc;

use portunus_proto::raftpb::{ConfState, Entry};

use super::gates::Gates;
use super::state::{Image, digest};
use super::violation::Violation;

/// What a log has at an index in a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    digest: u64,
    previous_term: u64,
}

/// The state after an index; the same wherever it is reached.
#[derive(Debug, Clone, PartialEq)]
struct After {
    state: u64,
    conf_state: ConfState,
    gates: Arc<Gates>,
}

#[derive(Default)]
pub(super) struct Witness {
    leaders: BTreeMap<u64, u64>,
    votes: BTreeMap<(u64, u64), u64>,
    /// By index and term.
    logged: BTreeMap<(u64, u64), Identity>,
    /// Term of the entry, and a term in which it was known to be committed; from index 1 on.
    committed: Vec<(u64, u64)>,
    after: BTreeMap<u64, After>,
    /// Index by proposal.
    pub(super) acknowledged: BTreeMap<u64, u64>,
    reads: BTreeMap<u64, u64>,
    pub(super) reads_answered: u64,
    pub(super) switches: u64,
}

impl Witness {
    /// The last index that is known to be committed.
    pub(super) fn commit(&self) -> u64 {
        self.committed.len() as u64
    }

    /// Term of a committed entry.
    pub(super) fn committed_term(&self, index: u64) -> Option<u64> {
        let place = usize::try_from(index.checked_sub(1)?).ok()?;
        self.committed.get(place).map(|(term, _)| *term)
    }

    /// A member leads; `term_of` is its log.
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

    /// Entries are on a disk or on their way to one, behind an entry of `previous_term`.
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

    /// A member in `term` knows that everything up to `commit` is committed.
    pub(super) fn commits(
        &mut self,
        id: u64,
        known: std::ops::RangeInclusive<u64>,
        term: u64,
        term_of: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), Violation> {
        for index in known {
            // What a snapshot covers is compared when it is installed.
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

    /// A member has reached a state.
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

    /// Counts entries that change the value of a feature, once.
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

    /// A client was told that its proposal is in.
    pub(super) fn acknowledges(&mut self, proposal: u64, index: u64) {
        self.acknowledged.insert(proposal, index);
    }

    /// A read begins.
    pub(super) fn begins_read(&mut self, context: u64) {
        self.reads.insert(context, self.commit());
    }

    /// A read is answered.
    pub(super) fn answers(&mut self, id: u64, context: u64, index: u64) -> Result<(), Violation> {
        self.reads_answered += 1;
        let floor = self.reads.get(&context).copied().unwrap_or(u64::MAX);
        if index < floor {
            return Err(Violation::StaleRead { id, index, floor });
        }
        Ok(())
    }

    /// A vote goes out.
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
