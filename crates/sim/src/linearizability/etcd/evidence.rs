//! Constraints on unanswered requests that follow from the answers of a history.
//!
//! An unanswered request may have taken effect at any time, and a crash leaves one for each
//! client, so trying all orders takes too long. But the answer to a write contains its
//! revision, and every entry that a read returned contains the revision that wrote it. So an
//! unanswered request can only have made a revision that no answered write made, and must
//! have written the entries that reads returned for it. The constraints only exclude choices
//! that would fail later; the verdict is the same without them.

use std::collections::{HashMap, HashSet};

use super::super::Operation;
use super::request::{Answer, Entry, Key, Op, OpAnswer, Refusal, Request, Value};
use super::store::Store;

/// Replaces all values that no answer contains.
const UNSEEN: &str = "";

#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// Revisions made by requests that were answered.
    claimed: HashSet<i64>,
    /// The entries in answers, by the revision that wrote them.
    seen_at: HashMap<i64, HashMap<Key, Value>>,
    /// All keys and values in answers.
    values_seen: HashSet<(Key, Value)>,
    /// The revision of each value in answers that only one request writes.
    written_at: HashMap<(Key, Value), i64>,
    /// The newest revision in any answer.
    revision_max: i64,
    /// Leases that some put names, or whose grant or revocation was answered.
    leases_used: HashSet<i64>,
    /// Leases whose absence an answer or a second grant implies.
    leases_absent: HashSet<i64>,
}

impl Evidence {
    pub(super) fn of(start: &Store, history: &[Operation<Request, Answer>]) -> Evidence {
        let mut evidence = Evidence::default();
        let mut writers: HashMap<(&Key, &Value), usize> = HashMap::new();
        let mut granted: HashSet<i64> = start.leases.iter().copied().collect();
        for (key, entry) in &start.keys {
            *writers.entry((key, &entry.value)).or_default() += 1;
        }
        for operation in history {
            for op in operation.input.ops() {
                if let Op::Put(key, value, lease) = op {
                    *writers.entry((key, value)).or_default() += 1;
                    evidence.leases_used.insert(*lease);
                }
            }
            if let Request::Grant(lease) = operation.input
                && !granted.insert(lease)
            {
                // Granted twice: it must have been revoked in between.
                evidence.leases_absent.insert(lease);
            }
            if let Some(answer) = operation.output() {
                evidence.record_answer(&operation.input, answer);
            }
        }
        for (revision, entries) in &evidence.seen_at {
            for (key, value) in entries {
                if writers.get(&(key, value)) == Some(&1) {
                    let written = (key.clone(), value.clone());
                    evidence.written_at.insert(written, *revision);
                }
            }
        }
        evidence
    }

    fn record_answer(&mut self, request: &Request, answer: &Answer) {
        self.revision_max = self.revision_max.max(answer.revision().unwrap_or(0));
        if let Request::Grant(lease) | Request::Revoke(lease) = request {
            self.leases_used.insert(*lease);
        }
        if *answer == Answer::Refused(Refusal::LeaseNotFound) {
            self.leases_absent.extend(leases_of(request));
        }
        let (
            Request::Txn(txn),
            Answer::Txn {
                revision,
                succeeded,
                answers,
            },
        ) = (request, answer)
        else {
            return;
        };
        let ops = if *succeeded {
            &txn.then
        } else {
            &txn.otherwise
        };
        for (op, answer) in ops.iter().zip(answers) {
            match (op, answer) {
                (Op::Put(key, _, _), OpAnswer::Put(previous)) => {
                    self.claimed.insert(*revision);
                    previous
                        .iter()
                        .for_each(|entry| self.record_entry(key, entry));
                }
                (_, OpAnswer::Delete(found)) if !found.is_empty() => {
                    self.claimed.insert(*revision);
                    found
                        .iter()
                        .for_each(|(key, entry)| self.record_entry(key, entry));
                }
                (_, OpAnswer::Get(found)) => {
                    found
                        .iter()
                        .for_each(|(key, entry)| self.record_entry(key, entry));
                }
                _ => {}
            }
        }
    }

    fn record_entry(&mut self, key: &Key, entry: &Entry) {
        self.values_seen.insert((key.clone(), entry.value.clone()));
        let entries = self.seen_at.entry(entry.mod_revision).or_default();
        entries.insert(key.clone(), entry.value.clone());
    }

    /// Returns the request with its unseen values replaced. Requests that are equal then are
    /// interchangeable.
    pub(super) fn kind_of(&self, request: &Request) -> Request {
        let mut kind = request.clone();
        if let Request::Txn(txn) = &mut kind {
            for op in txn.then.iter_mut().chain(&mut txn.otherwise) {
                if let Op::Put(key, value, _) = op {
                    let is_seen = self.values_seen.contains(&(key.clone(), value.clone()));
                    if !is_seen {
                        *value = UNSEEN.into();
                    }
                }
            }
        }
        kind
    }

    /// Returns false if an unanswered request cannot help in this state; cheaper than applying it.
    pub(super) fn is_worth_trying(&self, state: &Store, request: &Request) -> bool {
        match request {
            // A transaction makes the next revision or changes nothing.
            Request::Txn(_) => self.is_open(state.revision + 1),
            Request::Grant(lease) => {
                self.leases_used.contains(lease) && !state.leases.contains(lease)
            }
            Request::Revoke(lease) => {
                state.leases.contains(lease)
                    && (self.leases_absent.contains(lease) || self.is_open(state.revision + 1))
            }
        }
    }

    fn is_open(&self, revision: i64) -> bool {
        revision <= self.revision_max && !self.claimed.contains(&revision)
    }

    /// Returns whether an unanswered request may have led from one state to the other.
    pub(super) fn allows(&self, before: &Store, after: &Store, request: &Request) -> bool {
        if after.revision == before.revision {
            return match request {
                Request::Revoke(lease) => self.leases_absent.contains(lease),
                Request::Grant(_) | Request::Txn(_) => true,
            };
        }
        let revision = after.revision;
        let written_now = |key: &Key, value: &Value| {
            after
                .keys
                .get(key)
                .is_some_and(|entry| entry.mod_revision == revision && entry.value == *value)
        };
        let seen = self.seen_at.get(&revision);
        let wrote_what_was_seen =
            seen.is_none_or(|entries| entries.iter().all(|(key, value)| written_now(key, value)));
        let seen_here_only = |op: &Op| match op {
            Op::Put(key, value, _) if written_now(key, value) => self
                .written_at
                .get(&(key.clone(), value.clone()))
                .is_none_or(|at| *at == revision),
            _ => true,
        };
        // A LeaseNotFound refusal has no revision, so revision_max is no bound for it.
        let is_absent =
            matches!(request, Request::Revoke(lease) if self.leases_absent.contains(lease));
        let is_open = is_absent || revision <= self.revision_max;
        is_open
            && !self.claimed.contains(&revision)
            && wrote_what_was_seen
            && request.ops().all(seen_here_only)
    }
}

/// Returns the leases that a request names.
fn leases_of(request: &Request) -> impl Iterator<Item = i64> {
    let put = request.ops().filter_map(|op| match op {
        Op::Put(_, _, lease) => Some(*lease),
        Op::Get(_) | Op::Delete(_) => None,
    });
    put.chain(match request {
        Request::Revoke(lease) | Request::Grant(lease) => Some(*lease),
        Request::Txn(_) => None,
    })
}
