//! Generates histories as clients of a real store record them, with crashes and planted bugs.

use std::collections::VecDeque;

use super::super::etcd::{
    Answer, Condition, History, Key, Keys, Op, OpAnswer, Request, Store, Txn,
};
use super::super::{Operation, Outcome};

/// A bug of the store, which occurs in three of ten opportunities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A read is answered from an older state.
    StaleRead,
    /// A write is acknowledged but not applied.
    LostUpdate,
    /// A crash loses the newest acknowledged writes.
    ForgottenInCrash,
    /// Two writes get the same revision.
    RepeatedRevision,
    /// A transaction succeeds although its condition does not hold.
    ConditionIgnored,
    /// Only the first operation of a transaction is applied.
    HalfATransaction,
    /// Revoking a lease does not delete its keys.
    LeaseKeepsItsKeys,
    /// A write is applied a second time later.
    AppliedTwice,
}

enum Client {
    Idle,
    /// An index into the history, and the answer once the request took effect.
    Waiting(usize, Option<Answer>),
}

pub struct Generator {
    random: u64,
    keys: u64,
    clients: Vec<Client>,
    store: Store,
    older: VecDeque<Store>,
    time: u64,
    values: u64,
    leases: Vec<i64>,
    repeated: Option<Request>,
}

impl Generator {
    pub fn new(seed: u64, clients: usize, keys: u64) -> Generator {
        Generator {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            keys,
            clients: (0..clients).map(|_| Client::Idle).collect(),
            store: Store::default(),
            older: VecDeque::new(),
            time: 0,
            values: 0,
            leases: Vec::new(),
            repeated: None,
        }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }

    fn now(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// Generates `operations` requests, with a crash about every `crash_after`.
    pub fn run(&mut self, operations: usize, crash_after: u64, bug: Option<Bug>) -> History {
        let mut history = History::new();
        loop {
            let is_enough = history.len() == operations;
            if self.below(crash_after * 3) == 0 || (is_enough && self.below(20) == 0) {
                self.crash(bug);
                if is_enough {
                    break;
                }
            }
            let client = usize::try_from(self.below(self.clients.len() as u64)).unwrap();
            self.turn(client, &mut history, is_enough, bug);
        }
        // The last request reads all keys.
        let called_at = self.now();
        let output = self.store.apply(&Request::get_all());
        let at = self.now();
        history.push(Operation {
            client: 0,
            input: Request::get_all(),
            called_at,
            outcome: Outcome::Answered { output, at },
        });
        history
    }

    fn crash(&mut self, bug: Option<Bug>) {
        for client in &mut self.clients {
            *client = Client::Idle;
        }
        if bug == Some(Bug::ForgottenInCrash)
            && let Some(older) = self.older.iter().rev().nth(1)
        {
            self.store = older.clone();
        }
    }

    fn turn(&mut self, client: usize, history: &mut History, is_enough: bool, bug: Option<Bug>) {
        match std::mem::replace(&mut self.clients[client], Client::Idle) {
            Client::Idle if is_enough => {}
            Client::Idle => {
                let operation = Operation {
                    client,
                    input: self.request(),
                    called_at: self.now(),
                    outcome: Outcome::Unknown,
                };
                self.clients[client] = Client::Waiting(history.len(), None);
                history.push(operation);
            }
            Client::Waiting(index, None) => {
                let before = self.store.clone();
                let answer = self.apply(&history[index].input, bug);
                if before != self.store {
                    self.older.push_back(before);
                    self.older.drain(..self.older.len().saturating_sub(4));
                }
                self.clients[client] = Client::Waiting(index, Some(answer));
            }
            Client::Waiting(index, Some(output)) => {
                let at = self.now();
                history[index].outcome = Outcome::Answered { output, at };
            }
        }
    }

    fn apply(&mut self, request: &Request, bug: Option<Bug>) -> Answer {
        if let Some(repeated) = self.repeated.take_if(|_| bug == Some(Bug::AppliedTwice)) {
            let _ = self.store.apply(&repeated);
        }
        let is_wrong = bug.is_some() && self.below(100) < 30;
        if !is_wrong {
            return self.store.apply(request);
        }
        match (bug, request) {
            (Some(Bug::StaleRead), Request::Txn(Txn { then, .. }))
                if matches!(then[..], [Op::Get(_)]) =>
            {
                let older = self.older.front().unwrap_or(&self.store);
                older.clone().apply(request)
            }
            (Some(Bug::LostUpdate), _) => self.store.clone().apply(request),
            (Some(Bug::RepeatedRevision), _) => {
                let revision = self.store.revision;
                let answer = self.store.apply(request);
                self.store.revision = revision;
                answer
            }
            (Some(Bug::ConditionIgnored), Request::Txn(txn)) if !txn.when.is_empty() => {
                let mut blind = txn.clone();
                blind.when.clear();
                self.store.apply(&Request::Txn(blind))
            }
            (Some(Bug::HalfATransaction), Request::Txn(txn)) if txn.then.len() > 1 => {
                let answer = self.store.clone().apply(request);
                let mut half = txn.clone();
                half.then.truncate(1);
                let _ = self.store.apply(&Request::Txn(half));
                answer
            }
            (Some(Bug::LeaseKeepsItsKeys), Request::Revoke(_)) => {
                let keys = self.store.keys.clone();
                let answer = self.store.apply(request);
                self.store.keys = keys;
                answer
            }
            (Some(Bug::AppliedTwice), _) => {
                self.repeated = Some(request.clone());
                self.store.apply(request)
            }
            _ => self.store.apply(request),
        }
    }

    fn key(&mut self) -> Key {
        format!("k{}", self.below(self.keys)).into()
    }

    fn put(&mut self, lease: i64) -> Op {
        self.values += 1;
        Op::Put(self.key(), format!("v{}", self.values).into(), lease)
    }

    fn request(&mut self) -> Request {
        match self.below(20) {
            0..6 => Request::op(self.put(0)),
            6..10 => Request::op(Op::Get(Keys::One(self.key()))),
            10..12 => Request::op(Op::Delete(Keys::One(self.key()))),
            12..15 => {
                let key = self.key();
                let entry = self.store.keys.get(&key);
                let condition = match (entry, self.random % 3) {
                    (entry, 0) => Condition::ModRevision(entry.map_or(0, |e| e.mod_revision)),
                    (entry, 1) => Condition::Version(entry.map_or(0, |e| e.version)),
                    (entry, _) => Condition::CreateRevision(entry.map_or(0, |e| e.create_revision)),
                };
                self.values += 1;
                Request::Txn(Txn {
                    when: vec![(key.clone(), condition)],
                    then: vec![Op::Put(key.clone(), format!("v{}", self.values).into(), 0)],
                    otherwise: vec![Op::Get(Keys::One(key))],
                })
            }
            15 => {
                let then = vec![
                    Op::Put("k0".into(), format!("t{}", self.values).into(), 0),
                    Op::Delete(Keys::One("k1".into())),
                ];
                self.values += 1;
                Request::Txn(Txn {
                    then,
                    ..Txn::default()
                })
            }
            16 => Request::get_all(),
            17 => {
                self.values += 1;
                let lease = i64::try_from(self.values).unwrap();
                self.leases.push(lease);
                Request::Grant(lease)
            }
            18 => match self.leases.last() {
                Some(lease) => {
                    let lease = *lease;
                    Request::op(self.put(lease))
                }
                None => Request::get_all(),
            },
            _ => match self.leases.pop() {
                Some(lease) => Request::Revoke(lease),
                None => Request::get_all(),
            },
        }
    }

    /// Changes one answer; the history may still be linearizable.
    pub fn falsify(&mut self, history: &mut History) {
        let index = usize::try_from(self.below(history.len() as u64)).unwrap();
        let other = usize::try_from(self.below(history.len() as u64)).unwrap();
        let stolen = history[other].output().cloned();
        let choice = self.below(5);
        let delta = if self.below(2) == 0 { 1 } else { -1 };
        let earliest = history[index].called_at + 1;
        let Outcome::Answered { output, at } = &mut history[index].outcome else {
            return;
        };
        match (choice, &mut *output, stolen) {
            (0, Answer::Txn { revision, .. } | Answer::Lease { revision }, _) => {
                *revision += delta;
            }
            (1, Answer::Txn { answers, .. }, _) => match &mut answers[..] {
                [OpAnswer::Get(found), ..] => found.clear(),
                [OpAnswer::Put(previous), ..] => *previous = None,
                [OpAnswer::Delete(found), ..] => found.clear(),
                [] => {}
            },
            (2, Answer::Txn { succeeded, .. }, _) => *succeeded = !*succeeded,
            (3, _, Some(stolen)) => *output = stolen,
            _ => *at = (*at).saturating_sub(3).max(earliest),
        }
    }
}
