//! The reference implementation of an etcd store, with which answers are compared.

use std::collections::{BTreeMap, BTreeSet};

use super::request::{
    Answer, Condition, Entry, Key, Keys, Op, OpAnswer, Refusal, Request, Txn, Value,
};

/// The state of a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Store {
    /// The newest revision.
    pub revision: i64,
    /// The entries by key.
    pub keys: BTreeMap<Key, Entry>,
    /// The leases that exist.
    pub leases: BTreeSet<i64>,
}

impl Default for Store {
    /// A new store, at revision 1.
    fn default() -> Self {
        Store {
            revision: 1,
            keys: BTreeMap::new(),
            leases: BTreeSet::new(),
        }
    }
}

impl Store {
    /// Applies a request and returns its answer.
    pub fn apply(&mut self, request: &Request) -> Answer {
        match request {
            Request::Txn(txn) => self.transact(txn),
            Request::Grant(lease) => {
                if !self.leases.insert(*lease) {
                    return Answer::Refused(Refusal::LeaseExists);
                }
                self.lease_answer()
            }
            Request::Revoke(lease) => {
                if !self.leases.remove(lease) {
                    return Answer::Refused(Refusal::LeaseNotFound);
                }
                let keys_before = self.keys.len();
                self.keys.retain(|_, entry| entry.lease != *lease);
                self.revision += i64::from(self.keys.len() < keys_before);
                self.lease_answer()
            }
        }
    }

    fn lease_answer(&self) -> Answer {
        Answer::Lease {
            revision: self.revision,
        }
    }

    fn transact(&mut self, txn: &Txn) -> Answer {
        let succeeded = txn.when.iter().all(|(key, is)| self.holds(key, is));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        let lease_is_missing = |op: &Op| match op {
            Op::Put(_, _, lease) => *lease != 0 && !self.leases.contains(lease),
            Op::Get(_) | Op::Delete(_) => false,
        };
        if ops.iter().any(lease_is_missing) {
            return Answer::Refused(Refusal::LeaseNotFound);
        }
        let mut is_changed = false;
        // All changes of a transaction have the same revision.
        let revision = self.revision + 1;
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            answers.push(match op {
                Op::Put(key, value, lease) => {
                    is_changed = true;
                    OpAnswer::Put(self.put(key, value, *lease, revision))
                }
                Op::Get(keys) => OpAnswer::Get(self.get(keys)),
                Op::Delete(keys) => {
                    let found = self.get(keys);
                    is_changed |= !found.is_empty();
                    for (key, _) in &found {
                        self.keys.remove(key);
                    }
                    OpAnswer::Delete(found)
                }
            });
        }
        self.revision += i64::from(is_changed);
        Answer::Txn {
            revision: self.revision,
            succeeded,
            answers,
        }
    }

    fn holds(&self, key: &Key, condition: &Condition) -> bool {
        let entry = self.keys.get(key);
        match condition {
            Condition::ModRevision(is) => entry.map_or(0, |entry| entry.mod_revision) == *is,
            Condition::CreateRevision(is) => entry.map_or(0, |entry| entry.create_revision) == *is,
            Condition::Version(is) => entry.map_or(0, |entry| entry.version) == *is,
        }
    }

    fn put(&mut self, key: &Key, value: &Value, lease: i64, revision: i64) -> Option<Entry> {
        let previous = self.keys.get(key);
        let entry = Entry {
            value: value.clone(),
            create_revision: previous.map_or(revision, |entry| entry.create_revision),
            mod_revision: revision,
            version: previous.map_or(0, |entry| entry.version) + 1,
            lease,
        };
        self.keys.insert(key.clone(), entry)
    }

    fn get(&self, keys: &Keys) -> Vec<(Key, Entry)> {
        match keys {
            Keys::One(key) => {
                let found = self.keys.get_key_value(key).into_iter();
                found
                    .map(|(key, entry)| (key.clone(), entry.clone()))
                    .collect()
            }
            Keys::All => {
                let found = self.keys.iter();
                found
                    .map(|(key, entry)| (key.clone(), entry.clone()))
                    .collect()
            }
        }
    }
}
