//! A client that sends one request after another, each to some member.

use std::fmt;

use portunus_proto::etcdserverpb::{
    CompactionRequest, InternalRaftRequest, LeaseGrantRequest, LeaseRevokeRequest, RangeRequest,
};

use super::oracle::{Floor, Oracle};
use super::users::any_administration;
use crate::linearizability::etcd::{Condition, Keys, Op, Txn};
use crate::random::Random;
use crate::wire;

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The request of a client.
#[derive(Clone)]
pub(super) enum Request {
    /// A write, which goes through the log.
    Write {
        request: Box<InternalRaftRequest>,
        /// The cluster features without which it must have no effect.
        required: Vec<String>,
    },
    /// A read of one or all keys.
    Read { range: RangeRequest, keys: Keys },
    /// A keep-alive of a lease.
    Renew { lease: i64 },
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { request, required } => {
                write!(f, "{}", wire::show(request))?;
                match required.is_empty() {
                    true => Ok(()),
                    false => write!(f, ", requires {required:?}"),
                }
            }
            Self::Read { range, keys } => {
                let (at, serializable) = (range.revision, range.serializable);
                write!(f, "get {keys:?} at {at}, serializable: {serializable}")
            }
            Self::Renew { lease } => write!(f, "keep alive {lease}"),
        }
    }
}

/// A request under way.
#[derive(Clone)]
pub(super) struct Pending {
    pub(super) number: u64,
    pub(super) request: Request,
    pub(super) called_at: u64,
    pub(super) floor: Floor,
    pub(super) member: u64,
}

#[derive(Default)]
pub(super) struct Client {
    pub(super) pending: Option<Pending>,
    /// Leases whose grant was acknowledged, with their TTL.
    pub(super) leases: Vec<(i64, i64)>,
    /// Changes of users and roles so far, if this client administers them.
    pub(super) administrations: Option<usize>,
}

impl Client {
    /// Chooses the next request. `number` is its id, and the id of a lease that it grants.
    pub(super) fn next(
        &mut self,
        random: &mut Random,
        oracle: &Oracle,
        number: u64,
        required: &str,
        value_bytes_max: u64,
    ) -> Request {
        let write = |request: InternalRaftRequest| Request::Write {
            request: Box::new(request),
            required: Vec::new(),
        };
        if let Some(count) = &mut self.administrations
            && random.below(2) == 0
        {
            *count += 1;
            return write(any_administration(random, *count - 1, &KEYS));
        }
        let lease = random.choose(&self.leases).map(|(id, _)| *id);
        match random.below(100) {
            0..38 => {
                let used = lease.filter(|_| random.below(3) == 0).unwrap_or(0);
                let key = any_key(random);
                let required = (random.below(6) == 0).then(|| required.to_owned());
                Request::Write {
                    request: Box::new(InternalRaftRequest {
                        put: Some(wire::put(
                            key,
                            &value(random, number, value_bytes_max),
                            used,
                        )),
                        ..InternalRaftRequest::default()
                    }),
                    required: required.into_iter().collect(),
                }
            }
            38..50 => write(InternalRaftRequest {
                delete_range: Some(wire::delete(&any_keys(random))),
                ..InternalRaftRequest::default()
            }),
            50..62 => write(InternalRaftRequest {
                txn: Some(wire::txn(&any_txn(random, oracle, number))),
                ..InternalRaftRequest::default()
            }),
            62..80 => any_read(random, oracle),
            80..84 => write(InternalRaftRequest {
                compaction: Some(CompactionRequest {
                    revision: oracle.revision() - i64::try_from(random.below(12)).unwrap_or(0),
                    physical: false,
                }),
                ..InternalRaftRequest::default()
            }),
            84..90 => write(InternalRaftRequest {
                lease_grant: Some(LeaseGrantRequest {
                    id: i64::try_from(number).unwrap_or(1),
                    ttl: i64::try_from(random.between(2, 8)).unwrap_or(2),
                }),
                ..InternalRaftRequest::default()
            }),
            90..98 if lease.is_some() => Request::Renew {
                lease: lease.unwrap_or(0),
            },
            _ => match lease {
                Some(id) => write(InternalRaftRequest {
                    lease_revoke: Some(LeaseRevokeRequest { id }),
                    ..InternalRaftRequest::default()
                }),
                None => any_read(random, oracle),
            },
        }
    }
}

fn any_key(random: &mut Random) -> &'static str {
    random.choose(&KEYS).copied().unwrap_or(KEYS[0])
}

pub(super) fn any_keys(random: &mut Random) -> Keys {
    match random.below(6) {
        0 => Keys::All,
        _ => Keys::One(any_key(random).into()),
    }
}

fn value(random: &mut Random, number: u64, bytes_max: u64) -> String {
    let bytes = usize::try_from(random.below(bytes_max)).unwrap_or(0);
    format!("{number}{}", "x".repeat(bytes))
}

fn any_txn(random: &mut Random, oracle: &Oracle, number: u64) -> Txn {
    let condition = match random.below(3) {
        0 => Condition::Version(0),
        1 => {
            Condition::ModRevision(oracle.revision() - i64::try_from(random.below(4)).unwrap_or(0))
        }
        _ => Condition::CreateRevision(0),
    };
    let op = |random: &mut Random| {
        let key = any_key(random);
        match random.below(4) {
            0 => Op::Get(any_keys(random)),
            1 => Op::Delete(Keys::One(key.into())),
            _ => Op::Put(key.into(), format!("t{number}").into(), 0),
        }
    };
    let distinct = |random: &mut Random| {
        let mut ops: Vec<Op> = Vec::new();
        for _ in 0..random.between(1, 3) {
            let next = op(random);
            // A key is written once in a transaction.
            let is_taken = match &next {
                Op::Put(key, ..) | Op::Delete(Keys::One(key)) => ops.iter().any(|it| match it {
                    Op::Put(other, ..) | Op::Delete(Keys::One(other)) => other == key,
                    _ => false,
                }),
                _ => false,
            };
            if !is_taken {
                ops.push(next);
            }
        }
        ops
    };
    Txn {
        when: vec![(any_key(random).into(), condition)],
        then: distinct(random),
        otherwise: distinct(random),
    }
}

fn any_read(random: &mut Random, oracle: &Oracle) -> Request {
    let keys = any_keys(random);
    let mut range = wire::range(&keys);
    range.serializable = random.below(4) == 0;
    if random.below(6) == 0 {
        let back = i64::try_from(random.below(10)).unwrap_or(0);
        range.revision = (oracle.revision() - back).max(1);
    }
    Request::Read { range, keys }
}
