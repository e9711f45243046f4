//! A client that sends requests one after the other and records the answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::{
    CompactionRequest, LeaseGrantRequest, LeaseLeasesRequest, LeaseRevokeRequest,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::TortureError;
use crate::linearizability::etcd::{
    Answer, Condition, Entry, History, Key, Keys, Op, OpAnswer, Refusal, Request, Txn,
};
use crate::linearizability::{Operation, Outcome};
use crate::random::Random;
use crate::wire;

/// Few keys, so that clients conflict.
const KEYS: u64 = 5;
/// A TTL longer than any run.
const LEASE_TTL_S: i64 = 1_000_000;
/// Leases in use by the clients at a time.
const LEASES_MAX: usize = 4;

/// State shared by all clients of a run.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The clock of the history: calls and answers get ascending numbers.
    clock: AtomicU64,
    /// The source of unique values and lease ids.
    unique: AtomicU64,
    /// Number of answers so far.
    pub(super) answers: AtomicU64,
    /// Leases that requests use. A request with a revoked one is refused.
    leases: Mutex<Vec<i64>>,
    /// The newest verified revision, up to which clients may compact.
    pub(super) compactable: AtomicI64,
}

impl Shared {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn unique(&self) -> u64 {
        self.unique.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn with_leases<T>(&self, act: impl FnOnce(&mut Vec<i64>) -> T) -> T {
        act(&mut self.leases.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One connection.
#[derive(Clone)]
pub(super) struct Connection {
    kv: KvClient<Channel>,
    lease: LeaseClient<Channel>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Connection, tonic::transport::Error> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect()
            .await?;
        Ok(Connection {
            kv: KvClient::new(channel.clone()),
            lease: LeaseClient::new(channel),
        })
    }

    /// Sends a request.
    async fn send(&mut self, request: &Request) -> Result<Answer, Status> {
        match request {
            Request::Txn(txn) => match (&txn.when[..], &txn.then[..]) {
                ([], [Op::Put(key, value, lease)]) => {
                    let response = self
                        .kv
                        .put(wire::put(key, value, *lease))
                        .await?
                        .into_inner();
                    let previous = response.prev_kv.as_ref().map(wire::entry);
                    Ok(wire::op_answer(
                        response.header.as_ref(),
                        OpAnswer::Put(previous),
                    ))
                }
                ([], [Op::Get(keys)]) => {
                    let response = self.kv.range(wire::range(keys)).await?.into_inner();
                    let found = wire::entries(&response.kvs);
                    Ok(wire::op_answer(
                        response.header.as_ref(),
                        OpAnswer::Get(found),
                    ))
                }
                ([], [Op::Delete(keys)]) => {
                    let response = self.kv.delete_range(wire::delete(keys)).await?.into_inner();
                    let found = wire::entries(&response.prev_kvs);
                    Ok(wire::op_answer(
                        response.header.as_ref(),
                        OpAnswer::Delete(found),
                    ))
                }
                _ => {
                    let response = self.kv.txn(wire::txn(txn)).await?.into_inner();
                    Ok(wire::txn_answer(&response))
                }
            },
            Request::Grant(id) => {
                let request = LeaseGrantRequest {
                    id: *id,
                    ttl: LEASE_TTL_S,
                };
                let response = self.lease.lease_grant(request).await?.into_inner();
                let revision = response.header.map_or(0, |header| header.revision);
                Ok(Answer::Lease { revision })
            }
            Request::Revoke(id) => {
                let request = LeaseRevokeRequest { id: *id };
                let response = self.lease.lease_revoke(request).await?.into_inner();
                let revision = response.header.map_or(0, |header| header.revision);
                Ok(Answer::Lease { revision })
            }
        }
    }

    /// Lists all leases.
    pub(super) async fn leases(&mut self) -> Result<Vec<i64>, Status> {
        let response = self.lease.lease_leases(LeaseLeasesRequest {}).await?;
        let leases = response.into_inner().leases;
        Ok(leases.into_iter().map(|lease| lease.id).collect())
    }

    async fn compact(&mut self, revision: i64) -> Result<(), Status> {
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        match self.kv.compact(request).await {
            Err(status) if EtcdError::from_status(&status) == Some(EtcdError::Compacted) => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

/// A client and its recorded history.
pub(super) struct Client {
    number: usize,
    random: Random,
    /// The last entry that it read of each key, for conditions.
    known: Vec<Option<Entry>>,
    pub(super) history: History,
}

impl Client {
    pub(super) fn new(number: usize, random: Random) -> Client {
        Client {
            number,
            random,
            known: vec![None; usize::try_from(KEYS).unwrap_or(0)],
            history: History::new(),
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Sends requests until one is not answered.
    pub(super) async fn run(
        &mut self,
        connection: &mut Connection,
        shared: &Shared,
    ) -> Result<(), TortureError> {
        loop {
            if self.random.below(200) == 0 {
                let revision = shared.compactable.load(Ordering::Relaxed);
                if revision > 0 && connection.compact(revision).await.is_err() {
                    return Ok(());
                }
            }
            let request = self.choose(shared);
            if !self.send(request, connection, shared).await? {
                return Ok(());
            }
        }
    }

    /// Sends a request and records it; returns false if it was not answered.
    pub(super) async fn send(
        &mut self,
        input: Request,
        connection: &mut Connection,
        shared: &Shared,
    ) -> Result<bool, TortureError> {
        let called_at = shared.now();
        let answer = connection.send(&input).await;
        let at = shared.now();
        let refusal = |status: &Status| EtcdError::from_status(status);
        let answer = match answer {
            Ok(answer) => Some(answer),
            Err(status) => match refusal(&status) {
                Some(EtcdError::LeaseNotFound) => Some(Answer::Refused(Refusal::LeaseNotFound)),
                Some(EtcdError::LeaseExists) => Some(Answer::Refused(Refusal::LeaseExists)),
                None | Some(EtcdError::Stopped) => None,
                Some(_) => {
                    return Err(TortureError::Refused {
                        request: format!("{input:?}"),
                        source: Box::new(status),
                    });
                }
            },
        };
        if let Some(answer) = &answer {
            shared.answers.fetch_add(1, Ordering::SeqCst);
            self.learn(&input, answer, shared);
        }
        let is_answered = answer.is_some();
        self.history.push(Operation {
            client: self.number,
            input,
            called_at,
            outcome: answer.map_or(Outcome::Unknown, |output| Outcome::Answered { output, at }),
        });
        Ok(is_answered)
    }

    fn learn(&mut self, request: &Request, answer: &Answer, shared: &Shared) {
        match (request, answer) {
            (Request::Grant(lease), Answer::Lease { .. }) => shared.with_leases(|leases| {
                leases.push(*lease);
                // Older leases stay granted but are no longer used.
                leases.drain(..leases.len().saturating_sub(LEASES_MAX));
            }),
            (Request::Txn(_), Answer::Txn { answers, .. }) => {
                for answer in answers {
                    if let OpAnswer::Get(found) = answer {
                        for (key, entry) in found {
                            self.remember(key, entry);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn remember(&mut self, key: &Key, entry: &Entry) {
        let position = (0..KEYS).position(|number| **key == *key_name(number));
        if let Some(slot) = position.and_then(|position| self.known.get_mut(position)) {
            *slot = Some(entry.clone());
        }
    }

    fn choose(&mut self, shared: &Shared) -> Request {
        let number = self.random.below(KEYS);
        let key: Key = key_name(number).into();
        let value: Key = format!("v{}", shared.unique()).into();
        let one = |key: &Key| Keys::One(key.clone());
        match self.random.below(100) {
            0..25 => Request::op(Op::Put(key, value, 0)),
            25..50 => Request::op(Op::Get(Keys::One(key))),
            50..60 => Request::op(Op::Delete(Keys::One(key))),
            60..80 => Request::Txn(Txn {
                when: vec![(key.clone(), self.condition(number))],
                then: vec![Op::Put(key.clone(), value, 0)],
                otherwise: vec![Op::Get(Keys::One(key))],
            }),
            80..86 => {
                let second: Key = key_name((number + 1) % KEYS).into();
                let third: Key = key_name((number + 2) % KEYS).into();
                Request::Txn(Txn {
                    then: vec![
                        Op::Get(one(&key)),
                        Op::Put(key, value.clone(), 0),
                        Op::Put(second, value, 0),
                        Op::Delete(one(&third)),
                    ],
                    ..Txn::default()
                })
            }
            86..89 => Request::get_all(),
            89..91 => Request::Grant(i64::try_from(shared.unique()).unwrap_or(1)),
            kind => {
                let lease = shared.with_leases(|leases| self.random.choose(leases).copied());
                match lease {
                    None => Request::Grant(i64::try_from(shared.unique()).unwrap_or(1)),
                    Some(lease) if kind < 97 => Request::op(Op::Put(key, value, lease)),
                    Some(lease) => Request::Revoke(lease),
                }
            }
        }
    }

    /// Returns a condition that a key is as last read by this client, or absent.
    fn condition(&mut self, number: u64) -> Condition {
        let number = usize::try_from(number).unwrap_or(0);
        let known = self.known.get(number).cloned().flatten();
        let known = known.filter(|_| self.random.below(3) > 0);
        match self.random.below(3) {
            0 => Condition::Version(known.map_or(0, |entry| entry.version)),
            1 => Condition::CreateRevision(known.map_or(0, |entry| entry.create_revision)),
            _ => Condition::ModRevision(known.map_or(0, |entry| entry.mod_revision)),
        }
    }
}

/// Returns the name of a key.
pub(super) fn key_name(number: u64) -> String {
    format!("k{number}")
}
