//! Checks the invariants over all members during a run.
//!
//! | invariant | check |
//! | --- | --- |
//! | one leader per term | [`Invariants::leads`] |
//! | a leader has every entry committed in earlier terms | [`Invariants::leads`] |
//! | same index and term, same entry, same predecessor | [`Invariants::in_log`] |
//! | one entry per committed index, for all members and all time | [`Invariants::commits`], [`Invariants::applies`] |
//! | same answers, events, members and features at the same index | [`Invariants::applies`] |
//! | same keys and records at the same index | [`Invariants::compare_content`] |
//! | same hash at the same compact revision | [`Invariants::hashes`] |
//! | a read sees every entry committed before it began | [`Invariants::answers`] |
//! | one vote per member and term | [`Invariants::votes`] |
//!
//! What clients observe is checked by [`super::oracle`]. Nothing here changes a member.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use portunus_mvcc::KvHash;
use portunus_mvcc::backend::{Bucket, meta};
use portunus_proto::etcdserverpb::RangeRequest;
use portunus_proto::raftpb::{ConfState, Entry, SnapshotMetadata};
use portunus_statemachine::Applied;
use portunus_statemachine::membership::Membership;

use super::member::Replica;
use super::violation::Violation;

/// The whole content is compared at every index that is a multiple of this, at starts and after
/// installs.
const CONTENT_INTERVAL: u64 = 16;

/// The entry of a log at an index and term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    digest: u64,
    previous_term: u64,
}

/// The outcome of an entry; equal on all members.
#[derive(Debug, Clone, PartialEq)]
struct After {
    revision: i64,
    outcome: u64,
    conf_state: ConfState,
    /// Only if the entry changed it.
    membership: Option<Membership>,
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
    /// The digest of the whole content by index.
    content: BTreeMap<u64, (u64, u64)>,
    hashes: BTreeMap<(i64, i64), u32>,
    reads: BTreeMap<(u64, u64), u64>,
    pub(super) reads_answered: u64,
    pub(super) switches: u64,
    pub(super) hashes_compared: u64,
}

impl Invariants {
    /// Returns the last index known to be committed.
    pub(super) fn commit(&self) -> u64 {
        self.committed.len() as u64
    }

    /// Returns the term of a committed entry.
    fn committed_term(&self, index: u64) -> Option<u64> {
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
                digest: digest(&(entry.r#type, &entry.data)),
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

    /// Checks the outcome of an applied entry.
    pub(super) fn applies(
        &mut self,
        id: u64,
        replica: &Replica,
        applied: &Applied,
    ) -> Result<(), Violation> {
        let index = replica.applied_index();
        self.check_committed(id, replica)?;
        let machine = &replica.machine;
        let changes_members = !applied.effects.is_empty();
        let reached = After {
            revision: machine.store().revision(),
            outcome: outcome(applied),
            conf_state: machine.conf_state().clone(),
            membership: changes_members.then(|| machine.membership().clone()),
        };
        match self.after.get(&index) {
            None => {
                if machine.membership().params_since() == Some(index) {
                    self.switches += 1;
                }
                self.after.insert(index, reached);
            }
            Some(known) => compare(id, index, known, &reached)?,
        }
        if index.is_multiple_of(CONTENT_INTERVAL) {
            self.compare_content(id, replica)?;
        }
        Ok(())
    }

    fn check_committed(&self, id: u64, replica: &Replica) -> Result<(), Violation> {
        let index = replica.applied_index();
        if index == 0 || self.committed_term(index) == Some(replica.applied_term().0) {
            return Ok(());
        }
        Err(Violation::AppliedUncommitted { id, index })
    }

    /// Checks the state of a member that starts.
    pub(super) fn opened(&mut self, id: u64, replica: &Replica) -> Result<(), Violation> {
        self.check_committed(id, replica)?;
        self.check_position(id, replica)
    }

    /// Checks the state of a member after it installed a snapshot.
    pub(super) fn installed(
        &mut self,
        id: u64,
        replica: &Replica,
        snapshot: &SnapshotMetadata,
    ) -> Result<(), Violation> {
        let index = snapshot.index;
        if replica.applied_index() != index {
            let found = replica.applied_index();
            return Err(Violation::WrongSnapshot { id, index, found });
        }
        self.check_committed(id, replica)?;
        self.check_position(id, replica)
    }

    /// Compares revision, configuration and content with those of other members at this index.
    fn check_position(&mut self, id: u64, replica: &Replica) -> Result<(), Violation> {
        let index = replica.applied_index();
        if let Some(known) = self.after.get(&index) {
            let machine = &replica.machine;
            let reached = After {
                revision: machine.store().revision(),
                outcome: known.outcome,
                conf_state: machine.conf_state().clone(),
                membership: known
                    .membership
                    .as_ref()
                    .map(|known| comparable(machine.membership(), known)),
            };
            compare(id, index, known, &reached)?;
        }
        self.compare_content(id, replica)
    }

    /// Compares the whole content: keys, leases, members, versions, params.
    pub(super) fn compare_content(&mut self, id: u64, replica: &Replica) -> Result<(), Violation> {
        let index = replica.applied_index();
        if index == 0 {
            return Ok(());
        }
        let content = content(replica);
        let (known, of) = *self.content.entry(index).or_insert((content, id));
        if known != content {
            return Err(Violation::ContentsDiffer { id, of, index });
        }
        Ok(())
    }

    /// Compares the hash of a compaction with that of other members.
    pub(super) fn hashes(&mut self, id: u64, hash: KvHash) -> Result<(), Violation> {
        let KvHash {
            hash,
            revision,
            compact_revision,
        } = hash;
        let known = self.hashes.entry((revision, compact_revision));
        if let std::collections::btree_map::Entry::Occupied(_) = &known {
            self.hashes_compared += 1;
        }
        if *known.or_insert(hash) != hash {
            return Err(Violation::HashesDiffer { id, revision });
        }
        Ok(())
    }

    /// Records the commit index at the start of a read.
    pub(super) fn begins_read(&mut self, id: u64, context: u64) {
        self.reads.insert((id, context), self.commit());
    }

    /// Checks the index of an answered read.
    pub(super) fn answers(&mut self, id: u64, context: u64, index: u64) -> Result<(), Violation> {
        self.reads_answered += 1;
        // An answer to a request of an earlier process has no reader.
        let floor = self.reads.get(&(id, context)).copied().unwrap_or(0);
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

/// Returns a membership with the inputs of the last decision as another one has them: a restarted
/// member does not know them.
fn comparable(membership: &Membership, other: &Membership) -> Membership {
    let mut membership = membership.clone();
    membership.decided_from = std::sync::Arc::clone(&other.decided_from);
    membership
}

fn compare(id: u64, index: u64, known: &After, reached: &After) -> Result<(), Violation> {
    if known.conf_state != reached.conf_state {
        return Err(Violation::MembersDiffer {
            id,
            index,
            one: known.conf_state.clone(),
            other: reached.conf_state.clone(),
        });
    }
    if let (Some(known), Some(reached)) = (&known.membership, &reached.membership)
        && *known != comparable(reached, known)
    {
        return Err(Violation::FeaturesDiffer {
            id,
            index,
            one: format!("{known:?}"),
            other: format!("{reached:?}"),
        });
    }
    if known.revision != reached.revision || known.outcome != reached.outcome {
        return Err(Violation::StatesDiffer { id, index });
    }
    Ok(())
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Returns a digest of what an entry did: its error, if it was refused, and its events.
fn outcome(applied: &Applied) -> u64 {
    let mut hasher = DefaultHasher::new();
    let refusal = applied.answer.as_ref().err();
    refusal.map(|error| error.text()).hash(&mut hasher);
    if let Some(events) = &applied.events {
        events.revision.hash(&mut hasher);
        for event in &events.events {
            let kv = event.kv();
            (&kv.key, &kv.value, kv.create_revision, kv.version, kv.lease).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Returns a digest of all keys and records.
fn content(replica: &Replica) -> u64 {
    let mut hasher = DefaultHasher::new();
    let machine = &replica.machine;
    let all = RangeRequest {
        key: bytes::Bytes::from_static(&[0]),
        range_end: bytes::Bytes::from_static(&[0]),
        ..RangeRequest::default()
    };
    match machine.reader().range(&all) {
        Ok(response) => {
            for kv in &response.kvs {
                (&kv.key, &kv.value, kv.create_revision).hash(&mut hasher);
                (kv.mod_revision, kv.version, kv.lease).hash(&mut hasher);
            }
        }
        Err(error) => error.to_string().hash(&mut hasher),
    }
    for bucket in Bucket::ALL {
        for (key, value) in machine.store().iter_raw(bucket) {
            // Marks of compactions and of the applied index depend on the process.
            let is_local = bucket == Bucket::Meta && **key != *meta::CONF_STATE.as_bytes();
            if !is_local {
                (bucket.name(), key, value).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}
