//! A writer that records its responses, and checks them after a crash.
//!
//! Each writer owns a prefix and waits for every response, so at most one of its requests is
//! pending when the member dies. After the crash its keys and leases must be exactly what was
//! acknowledged, or that and the whole of the pending request.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseLeasesRequest,
    LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;

use crate::common::random::Random;
use crate::common::{Clients, Server, soon};

const KEYS: u64 = 6;
const LEASED_KEYS: u64 = 3;
/// Long enough that no lease ends during a test.
const LEASE_TTL_S: i64 = 3600;
/// The revisions that a compaction leaves.
const HISTORY_REVISIONS: i64 = 40;

/// Counts responses, so that a test can act after any number of them.
struct Acknowledgements(watch::Sender<u64>);

impl Default for Acknowledgements {
    fn default() -> Self {
        Acknowledgements(watch::Sender::new(0))
    }
}

impl Acknowledgements {
    fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Waits for that many.
    async fn wait_for(&self, count: u64) {
        self.0
            .subscribe()
            .wait_for(|answered| *answered >= count)
            .await
            .unwrap();
    }
}

/// Running writers, each over a separate connection, until the member has ended.
pub struct Writing(JoinSet<Writer>);

impl Writing {
    /// Starts them, and returns when so many requests were answered.
    pub async fn begin(server: &Server, writers: Vec<Writer>, acknowledgements: u64) -> Writing {
        let counter = Arc::new(Acknowledgements::default());
        let mut tasks = JoinSet::new();
        for mut writer in writers {
            let clients = server.connect().await;
            let counter = Arc::clone(&counter);
            tasks.spawn(async move {
                writer.write_until_refused(clients, &counter).await;
                writer
            });
        }
        soon("acknowledgements", counter.wait_for(acknowledgements)).await;
        Writing(tasks)
    }

    /// Returns the writers once none of them gets responses any more.
    pub async fn ended(self) -> Vec<Writer> {
        let mut writers = soon("the writers to end", self.0.join_all()).await;
        writers.sort_by_key(Writer::number);
        writers
    }
}

/// Keys with value, revision of the last change and lease.
type Keys = BTreeMap<String, (String, i64, i64)>;

/// The change of one request.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    /// Keys get a value and a lease, or are deleted.
    Keys(Vec<(String, Option<(String, i64)>)>),
    Grant(i64),
    /// The lease, and the keys deleted with it.
    Revoke(i64, Vec<String>),
    Compact(i64),
}

/// One writer and its expected state.
pub struct Writer {
    number: usize,
    random: Random,
    requests: u64,
    keys: Keys,
    lease: Option<i64>,
    /// The request that was pending when the member died.
    pending: Option<Change>,
    /// Acknowledged puts: key, value, revision.
    acknowledged: Vec<(String, String, i64)>,
    last_revision: i64,
    compacted: i64,
}

impl Writer {
    pub fn new(number: usize, random: Random) -> Writer {
        Writer {
            number,
            random,
            requests: 0,
            keys: Keys::new(),
            lease: None,
            pending: None,
            acknowledged: Vec::new(),
            last_revision: 0,
            compacted: 0,
        }
    }

    pub fn number(&self) -> usize {
        self.number
    }

    /// Writes until the member has ended.
    async fn write_until_refused(&mut self, mut clients: Clients, counter: &Acknowledgements) {
        loop {
            self.requests += 1;
            let change = self.choose();
            match self.request(&mut clients, &change).await {
                Ok(revision) => {
                    self.apply(&change, revision);
                    counter.add();
                }
                Err(status) => {
                    let refusal = EtcdError::from_status(&status);
                    assert!(
                        refusal.is_none_or(|refusal| refusal == EtcdError::Stopped),
                        "{change:?}: {status}"
                    );
                    self.pending = Some(change);
                    return;
                }
            }
        }
    }

    fn key(&self, number: u64) -> String {
        format!("w{}/{number}", self.number)
    }

    fn leased_key(&self, number: u64) -> String {
        format!("w{}/leased-{number}", self.number)
    }

    fn value(&self) -> String {
        format!("w{}-{}", self.number, self.requests)
    }

    fn choose(&mut self) -> Change {
        match self.random.below(100) {
            0..50 => {
                let number = self.random.below(KEYS);
                Change::Keys(vec![(self.key(number), Some((self.value(), 0)))])
            }
            50..60 => {
                let number = self.random.below(KEYS);
                Change::Keys(vec![(self.key(number), None)])
            }
            60..80 => {
                let put = |number| (self.key(number), Some((self.value(), 0)));
                Change::Keys(vec![put(0), put(1), put(2), (self.key(3), None)])
            }
            80..95 => match self.lease {
                None => {
                    // No other writer may choose it, in any round.
                    let unique = i64::try_from(self.requests).unwrap() * 100;
                    Change::Grant(unique + i64::try_from(self.number).unwrap() + 1)
                }
                Some(lease) if self.random.below(4) == 0 => {
                    let leased = self.keys.iter().filter(|(_, (_, _, of))| *of == lease);
                    Change::Revoke(lease, leased.map(|(key, _)| key.clone()).collect())
                }
                Some(lease) => {
                    let number = self.random.below(LEASED_KEYS);
                    Change::Keys(vec![(self.leased_key(number), Some((self.value(), lease)))])
                }
            },
            _ if self.number == 0 && self.last_revision - HISTORY_REVISIONS > self.compacted => {
                Change::Compact(self.last_revision - HISTORY_REVISIONS)
            }
            _ => Change::Keys(vec![(self.key(0), Some((self.value(), 0)))]),
        }
    }

    /// Sends the request and returns the revision of its response.
    async fn request(&self, clients: &mut Clients, change: &Change) -> Result<i64, Status> {
        let header = match change {
            Change::Keys(keys) => match &keys[..] {
                [(key, Some((value, lease)))] => {
                    clients
                        .kv
                        .put(put(key, value, *lease))
                        .await?
                        .into_inner()
                        .header
                }
                [(key, None)] => {
                    let response = clients.kv.delete_range(delete(key)).await?.into_inner();
                    let existed = i64::from(self.keys.contains_key(key));
                    assert_eq!(response.deleted, existed, "{key}");
                    response.header
                }
                several => {
                    let response = clients
                        .kv
                        .txn(self.transaction(several))
                        .await?
                        .into_inner();
                    assert!(response.succeeded, "{several:?}");
                    response.header
                }
            },
            Change::Grant(id) => {
                let request = LeaseGrantRequest {
                    id: *id,
                    ttl: LEASE_TTL_S,
                };
                clients
                    .lease
                    .lease_grant(request)
                    .await?
                    .into_inner()
                    .header
            }
            Change::Revoke(id, _) => {
                let request = LeaseRevokeRequest { id: *id };
                clients
                    .lease
                    .lease_revoke(request)
                    .await?
                    .into_inner()
                    .header
            }
            Change::Compact(revision) => {
                let request = CompactionRequest {
                    revision: *revision,
                    physical: false,
                };
                clients.kv.compact(request).await?.into_inner().header
            }
        };
        Ok(header.unwrap().revision)
    }

    /// Returns a transaction that succeeds only if the first key has the state this writer
    /// expects.
    fn transaction(&self, keys: &[(String, Option<(String, i64)>)]) -> TxnRequest {
        let first = &keys[0].0;
        let revision = self.keys.get(first).map_or(0, |(_, revision, _)| *revision);
        let ops = keys.iter().map(|(key, to)| match to {
            Some((value, lease)) => Op::RequestPut(put(key, value, *lease)),
            None => Op::RequestDeleteRange(delete(key)),
        });
        TxnRequest {
            compare: vec![Compare {
                result: CompareResult::Equal as i32,
                target: CompareTarget::Mod as i32,
                key: first.clone().into(),
                target_union: Some(TargetUnion::ModRevision(revision)),
                ..Compare::default()
            }],
            success: ops.map(|op| RequestOp { request: Some(op) }).collect(),
            failure: Vec::new(),
        }
    }

    fn apply(&mut self, change: &Change, revision: i64) {
        self.last_revision = self.last_revision.max(revision);
        match change {
            Change::Keys(keys) => {
                for (key, to) in keys {
                    match to {
                        Some((value, lease)) => {
                            self.acknowledged
                                .push((key.clone(), value.clone(), revision));
                            self.keys
                                .insert(key.clone(), (value.clone(), revision, *lease));
                        }
                        None => {
                            self.keys.remove(key);
                        }
                    }
                }
            }
            Change::Grant(id) => self.lease = Some(*id),
            Change::Revoke(_, keys) => {
                self.lease = None;
                for key in keys {
                    self.keys.remove(key);
                }
            }
            Change::Compact(revision) => self.compacted = *revision,
        }
    }

    /// Compares the stored state with the acknowledged one; a pending request must be applied
    /// completely or not at all. Afterwards the writer knows which.
    pub async fn check_and_settle(&mut self, clients: &mut Clients) {
        let found = self.read_keys(clients).await;
        let lease = self.read_lease(clients).await;
        let Some(change) = self.pending.take() else {
            assert_eq!((found, lease), (self.keys.clone(), self.lease));
            return;
        };
        if let Change::Compact(_) = change {
            assert_eq!((found, lease), (self.keys.clone(), self.lease));
            let revision = clients
                .maintenance
                .hash_kv(portunus_proto::etcdserverpb::HashKvRequest { revision: 0 });
            // A store that was never compacted answers -1; the writer starts with 0.
            let compacted = revision.await.unwrap().into_inner().compact_revision.max(0);
            assert!(
                compacted >= self.compacted,
                "{compacted} after {}",
                self.compacted
            );
            self.compacted = compacted;
            return;
        }
        if (&found, lease) == (&self.keys, self.lease) {
            return;
        }
        let before = (self.keys.clone(), self.lease);
        // All keys it changed have one revision, newer than any this writer saw.
        let revision = match &change {
            Change::Keys(keys) => keys
                .iter()
                .find(|(_, to)| to.is_some())
                .and_then(|(key, _)| found.get(key))
                .map_or(self.last_revision, |(_, revision, _)| *revision),
            _ => self.last_revision,
        };
        self.apply(&change, revision);
        assert_eq!(
            (&found, lease),
            (&self.keys, self.lease),
            "neither this nor {before:?}, with {change:?} open"
        );
        assert!(revision >= before.0.values().map(|(_, r, _)| *r).max().unwrap_or(0));
    }

    async fn read_keys(&self, clients: &mut Clients) -> Keys {
        let request = RangeRequest {
            key: format!("w{}/", self.number).into(),
            range_end: format!("w{}0", self.number).into(),
            ..RangeRequest::default()
        };
        let response = clients.kv.range(request).await.unwrap().into_inner();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        response
            .kvs
            .iter()
            .map(|kv| (text(&kv.key), (text(&kv.value), kv.mod_revision, kv.lease)))
            .collect()
    }

    /// Returns the one lease of this writer that exists.
    async fn read_lease(&self, clients: &mut Clients) -> Option<i64> {
        let response = clients
            .lease
            .lease_leases(LeaseLeasesRequest {})
            .await
            .unwrap();
        let leases = response
            .into_inner()
            .leases
            .into_iter()
            .map(|lease| lease.id);
        let mine: BTreeSet<i64> = leases
            .filter(|id| id % 100 == i64::try_from(self.number).unwrap() + 1)
            .collect();
        assert!(mine.len() <= 1, "{mine:?}");
        mine.first().copied()
    }
}

/// Checks that every acknowledged put is found at its revision (unless compacted), no two
/// requests have one revision, and the revision never goes back.
pub async fn check_revisions(writers: &[Writer], clients: &mut Clients) {
    let compacted = writers[0].compacted;
    let mut requests = HashSet::new();
    let mut newest = 0;
    for writer in writers {
        newest = newest.max(writer.last_revision);
        for (key, value, revision) in &writer.acknowledged {
            requests.insert((*revision, value));
            if *revision < compacted {
                continue;
            }
            let request = RangeRequest {
                key: key.clone().into(),
                revision: *revision,
                serializable: true,
                ..RangeRequest::default()
            };
            let response = clients.kv.range(request).await.unwrap().into_inner();
            assert_eq!(
                response.kvs[0].value,
                value.as_bytes(),
                "{key} at {revision}"
            );
            assert_eq!(response.kvs[0].mod_revision, *revision, "{key}");
            assert!(response.header.unwrap().revision >= newest);
        }
    }
    let revisions: HashSet<i64> = requests.iter().map(|(revision, _)| *revision).collect();
    assert_eq!(
        revisions.len(),
        requests.len(),
        "two requests were given one revision"
    );
}

fn put(key: &str, value: &str, lease: i64) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        lease,
        ..PutRequest::default()
    }
}

fn delete(key: &str) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key.to_owned().into(),
        ..DeleteRangeRequest::default()
    }
}
