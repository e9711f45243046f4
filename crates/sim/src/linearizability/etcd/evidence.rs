//! What the answers of a history say about the requests that were not answered.
//!
//! An unanswered request may have taken effect at any moment, and a crash leaves one for
//! each client. Tried blindly, their orders are more than can be counted. But each answered
//! write names the revision it made, and each entry that somebody read names the revision
//! that wrote it. So an unanswered request can only have made a revision that nobody else
//! claims, and must have written there what others saw there. Every conclusion here only
//! leaves out what would fail later anyway; the verdict stays the same.

use std::collections::{HashMap, HashSet};

use super::super::Operation;
use super::request::{Answer, Entry, Key, Op, OpAnswer, Refusal, Request, Value};
use super::store::Store;

/// Stands for all values that nobody ever saw.
const UNSEEN: &str = "";

#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// Revisions made by requests that were answered.
    claimed: HashSet<i64>,
    /// What somebody saw at the revision that wrote it.
    seen_at: HashMap<i64, HashMap<Key, Value>>,
    /// All of it.
    values_seen: HashSet<(Key, Value)>,
    /// Where a value that only one request writes was seen.
    written_at: HashMap<(Key, Value), i64>,
    /// The newest revision anybody was told.
    revision_max: i64,
    /// Leases that matter to other requests than the one that grants them.
    leases_met: HashSet<i64>,
    /// Leases whose absence matters to somebody.
    leases_missed: HashSet<i64>,
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
                    evidence.leases_met.insert(*lease);
                }
            }
            if let Request::Grant(lease) = operation.input
                && !granted.insert(lease)
            {
                // Granted twice: in between it must have gone.
                evidence.leases_missed.insert(lease);
            }
            if let Some(answer) = operation.output() {
                evidence.hear(&operation.input, answer);
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

    fn hear(&mut self, request: &Request, answer: &Answer) {
        self.revision_max = self.revision_max.max(answer.revision().unwrap_or(0));
        if let Request::Grant(lease) | Request::Revoke(lease) = request {
            self.leases_met.insert(*lease);
        }
        if *answer == Answer::Refused(Refusal::LeaseNotFound) {
            self.leases_missed.extend(leases_of(request));
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
                    previous.iter().for_each(|entry| self.see(key, entry));
                }
                (_, OpAnswer::Delete(found)) if !found.is_empty() => {
                    self.claimed.insert(*revision);
                    found.iter().for_each(|(key, entry)| self.see(key, entry));
                }
                (_, OpAnswer::Get(found)) => {
                    found.iter().for_each(|(key, entry)| self.see(key, entry));
                }
                _ => {}
            }
        }
    }

    fn see(&mut self, key: &Key, entry: &Entry) {
        self.values_seen.insert((key.clone(), entry.value.clone()));
        let entries = self.seen_at.entry(entry.mod_revision).or_default();
        entries.insert(key.clone(), entry.value.clone());
    }

    /// The request without what nobody ever saw of it. Two that are alike then are as good
    /// as each other.
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

    /// A quick look before the request is carried out.
    pub(super) fn is_worth_trying(&self, state: &Store, request: &Request) -> bool {
        match request {
            // Changes keys, or nothing.
            Request::Txn(_) => self.is_open(state.revision + 1),
            Request::Grant(lease) => {
                self.leases_met.contains(lease) && !state.leases.contains(lease)
            }
            Request::Revoke(lease) => {
                state.leases.contains(lease)
                    && (self.leases_missed.contains(lease) || self.is_open(state.revision + 1))
            }
        }
    }

    fn is_open(&self, revision: i64) -> bool {
        revision <= self.revision_max && !self.claimed.contains(&revision)
    }

    /// Whether an unanswered request can have led from one state to the other.
    pub(super) fn allows(&self, before: &Store, after: &Store, request: &Request) -> bool {
        if after.revision == before.revision {
            return match request {
                Request::Revoke(lease) => self.leases_missed.contains(lease),
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
        // A refusal for want of a lease has no revision, so the newest told says nothing there.
        let is_missed =
            matches!(request, Request::Revoke(lease) if self.leases_missed.contains(lease));
        let is_open = is_missed || revision <= self.revision_max;
        is_open
            && !self.claimed.contains(&revision)
            && wrote_what_was_seen
            && request.ops().all(seen_here_only)
    }
}

/// The leases that a request names.
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
