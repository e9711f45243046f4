//! Long random histories: the store must answer like the model, through
//! restarts, sliced compactions and evictions.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use model::Model;
use portunus_mvcc::{
    ApplyError, CompactionStep, Config, EntryId, EventKind, Hooks, RangeResults, ReadError, Reader,
    Store,
    backend::{Backend, Bucket, Lmdb, LmdbConfig, MemoryBackend},
    rules::validate,
};
use portunus_proto::Term;
use portunus_proto::{
    EtcdError, LeaseId,
    etcdserverpb::{
        CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp,
        TxnRequest,
        compare::{CompareResult, CompareTarget, TargetUnion},
        range_request::{SortOrder, SortTarget},
        request_op::Request,
    },
    mvccpb::KeyValue,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Entry(Entry),
    Range(RangeRequest),
    CompactionSteps(usize),
    Reopen { flush: bool },
    EventsFrom(i64),
    Hash(i64),
}

/// An entry of the log. Revisions are offsets back from the newest, so that they exist.
#[derive(Debug, Clone)]
enum Entry {
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(i64),
    Grant(i64),
    Revoke(i64),
}

struct Harness {
    store: Option<Store>,
    directory: Option<tempfile::TempDir>,
    memory: MemoryBackend,
    config: Config,
    model: Model,
    log: Vec<Entry>,
    leases: Vec<i64>,
}

impl Harness {
    fn new(directory: Option<tempfile::TempDir>, resident_value_bytes_max: usize) -> Self {
        let mut harness = Self {
            store: None,
            directory,
            memory: MemoryBackend::new(),
            config: Config {
                commit_interval: Duration::from_micros(300),
                compaction_batch_limit: 3,
                resident_value_bytes_max,
                ..Config::default()
            },
            model: Model::new(),
            log: Vec::new(),
            leases: Vec::new(),
        };
        harness.open();
        harness
    }

    fn backend(&self) -> Arc<dyn Backend> {
        match &self.directory {
            None => Arc::new(self.memory.clone()),
            Some(directory) => {
                let path: PathBuf = directory.path().join("db");
                // Small, so that the map grows.
                let config = LmdbConfig {
                    map_bytes: 1 << 20,
                    ..LmdbConfig::default()
                };
                Arc::new(Lmdb::open(&path, config).unwrap())
            }
        }
    }

    /// Opens the store of the backend and replays the rest of the log.
    fn open(&mut self) {
        drop(self.store.take());
        let (mut store, restored) =
            Store::open(self.backend(), self.config.clone(), Hooks::default()).unwrap();
        let applied = restored.applied.map_or(0, |entry| entry.index);
        self.leases = store
            .iter_raw(Bucket::Lease)
            .map(|(key, _)| i64::from_be_bytes(key[..].try_into().unwrap()))
            .collect();
        for (position, entry) in self.log.iter().enumerate().skip(applied as usize) {
            let id = EntryId {
                index: position as u64 + 1,
                term: Term(1),
            };
            let _ = apply(&mut store, &mut self.leases, id, entry);
        }
        self.store = Some(store);
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    fn reader(&self) -> Reader {
        self.store.as_ref().unwrap().reader()
    }

    fn finish_compactions(&mut self) {
        loop {
            match self.store().compaction_step().unwrap() {
                CompactionStep::Idle => break,
                CompactionStep::Hash(job) => drop(job.run().unwrap()),
                CompactionStep::Waiting => std::thread::sleep(Duration::from_micros(50)),
                CompactionStep::Working | CompactionStep::Finished { .. } => {}
            }
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Entry(entry) => self.entry(entry),
            Step::Range(mut request) => {
                request.revision = self.absolute(request.revision);
                let answer = unwrap_refusal(self.reader().range(&request));
                assert_eq!(answer, self.model.range(&request), "{request:?}");
                self.stream_equals(&request);
            }
            Step::CompactionSteps(steps) => {
                for _ in 0..steps {
                    if let CompactionStep::Hash(job) = self.store().compaction_step().unwrap() {
                        job.run().unwrap();
                    }
                }
            }
            Step::Reopen { flush } => {
                if flush {
                    self.store().flush().unwrap();
                }
                self.open();
            }
            Step::EventsFrom(back) => self.events_equal(back),
            Step::Hash(back) => self.hashes_equal(back),
        }
    }

    fn absolute(&self, back: i64) -> i64 {
        if back == 0 {
            0
        } else {
            self.model.revision + 2 - back
        }
    }

    fn entry(&mut self, entry: Entry) {
        let entry = match entry {
            Entry::Compact(back) => Entry::Compact(self.absolute(back)),
            // The API layer refuses these, so no log holds them.
            Entry::Put(put) if validate::put(&put).is_err() => return,
            Entry::Txn(txn) if validate::txn(&txn, validate::TXN_OPS_MAX).is_err() => return,
            entry => entry,
        };
        if matches!(entry, Entry::Compact(_)) {
            // The model compacts immediately; hashes are compared only after
            // the store has finished too.
            self.finish_compactions();
        }
        self.log.push(entry.clone());
        let id = EntryId {
            index: self.log.len() as u64,
            term: Term(1),
        };
        let store = self.store.as_mut().unwrap();
        let before = self.model.clone();
        let answer = apply(store, &mut self.leases, id, &entry);
        let expected = expect(&mut self.model, &entry);
        assert_eq!(answer, expected, "{entry:?}");
        assert_eq!(store.revision(), self.model.revision);
        assert_eq!(store.compact_revision(), self.model.compact_revision);
        for lease in 1..4 {
            assert_eq!(
                self.reader().keys_of(LeaseId(lease)),
                self.model.keys_of(lease)
            );
        }
        if let (Entry::Compact(revision), Ok(_)) = (&entry, &expected) {
            let hash = before.compaction_hash(*revision);
            self.finish_compactions();
            let cached = self.reader().compaction_hashes();
            assert_eq!(
                cached.last().map(|c| (c.revision, c.hash)),
                Some((*revision, hash))
            );
        }
    }

    fn stream_equals(&self, request: &RangeRequest) {
        let reader = self.reader();
        // Put together, the pieces equal the one answer only if they are sorted by key; with
        // another target each piece is sorted separately, which another test covers.
        let request = &RangeRequest {
            sort_target: SortTarget::Key as i32,
            ..request.clone()
        };
        let Ok(pieces) = reader.range_stream(request, 40) else {
            return;
        };
        let pieces: Result<Vec<_>, _> = pieces.collect();
        let merged = unwrap_refusal(pieces).map(|pieces| {
            let mut merged = portunus_proto::etcdserverpb::RangeResponse::default();
            for piece in pieces {
                merged.kvs.extend(piece.kvs);
                merged.header = merged.header.or(piece.header);
                merged.more |= piece.more;
                merged.count += piece.count;
            }
            merged
        });
        assert_eq!(merged, self.model.range(request), "stream of {request:?}");
    }

    fn events_equal(&mut self, back: i64) {
        self.finish_compactions();
        let from = self.absolute(back).max(1);
        let reader = self.reader();
        let found = unwrap_refusal(reader.events_since(from, usize::MAX));
        if from < self.model.compact_revision {
            assert_eq!(found, Err(EtcdError::Compacted));
            return;
        }
        let found: Vec<_> = found
            .unwrap()
            .iter()
            .flat_map(|revision| {
                revision.events.iter().map(|event| {
                    assert_eq!(event.kv().mod_revision, revision.revision);
                    let prev = reader.prev_kv(event).unwrap();
                    (event.kind(), event.kv().clone(), prev)
                })
            })
            .collect();
        let compact_revision = self.model.compact_revision;
        let history = &self.model.history;
        let expected: Vec<_> = history
            .iter()
            .enumerate()
            .filter(|(_, change)| change.main >= from)
            // At the compact revision only the last change of a key is left.
            .filter(|(position, change)| {
                change.main > compact_revision
                    || !history[position + 1..]
                        .iter()
                        .any(|later| later.main == change.main && later.key == change.key)
            })
            .map(|(_, change)| {
                let prev = match change.main > compact_revision {
                    true => self.model.state_at(change.main - 1).remove(&change.key),
                    false => None,
                };
                match &change.kv {
                    Some(kv) => (EventKind::Put, kv.clone(), prev),
                    None => {
                        let kv = KeyValue {
                            key: change.key.clone(),
                            mod_revision: change.main,
                            ..KeyValue::default()
                        };
                        (EventKind::Delete, kv, prev)
                    }
                }
            })
            .collect();
        assert_eq!(found, expected, "from {from}");
        let two = reader.events_since(from, 2).unwrap();
        assert!(two.len() <= 2);
    }

    fn hashes_equal(&mut self, back: i64) {
        self.finish_compactions();
        let revision = self.absolute(back).max(0);
        if self
            .reader()
            .compaction_hashes()
            .iter()
            .any(|h| h.revision == revision && revision != 0)
        {
            return;
        }
        let found = unwrap_refusal(self.reader().hash_kv(revision));
        if revision > self.model.revision {
            assert_eq!(found, Err(EtcdError::FutureRevision));
        } else if revision > 0 && revision < self.model.compact_revision {
            assert_eq!(found, Err(EtcdError::Compacted));
        } else {
            let found = found.unwrap();
            let at = if revision == 0 {
                self.model.revision
            } else {
                revision
            };
            assert_eq!(found.compact_revision, self.model.compact_revision);
            assert_eq!(found.hash, self.model.hash_kv(at), "at {at}");
        }
    }
}

fn unwrap_refusal<T>(result: Result<T, ReadError>) -> Result<T, EtcdError> {
    result.map_err(|error| match error {
        ReadError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    })
}

/// Applies an entry and returns the response as text, since response types differ.
fn apply(
    store: &mut Store,
    leases: &mut Vec<i64>,
    id: EntryId,
    entry: &Entry,
) -> Result<String, EtcdError> {
    store.begin(id).unwrap();
    let lookup = |lease: LeaseId| leases.contains(&lease.0);
    let answer: Result<String, ApplyError> = match entry {
        Entry::Put(put) => store.put(put, &lookup).map(|a| format!("{:?}", a.response)),
        Entry::Delete(delete) => store
            .delete_range(delete)
            .map(|a| format!("{:?}", a.response)),
        Entry::Txn(txn) => store
            .txn(txn, &lookup, RangeResults::Wanted)
            .map(|a| format!("{:?}", a.response)),
        Entry::Compact(revision) => store
            .compact(&CompactionRequest {
                revision: *revision,
                physical: false,
            })
            .map(|response| format!("{response:?}")),
        Entry::Grant(lease) => {
            leases.push(*lease);
            let key = Bytes::copy_from_slice(&lease.to_be_bytes());
            store
                .put_raw(Bucket::Lease, key, Bytes::from_static(b"lease"))
                .map(|()| String::new())
        }
        Entry::Revoke(lease) => {
            let revoked = store.revoke_lease(LeaseId(*lease)).map(|_| String::new());
            leases.retain(|existing| existing != lease);
            revoked
        }
    };
    store.end().unwrap();
    answer.map_err(|error| error.refusal().unwrap_or_else(|| panic!("{error}")))
}

fn expect(model: &mut Model, entry: &Entry) -> Result<String, EtcdError> {
    match entry {
        Entry::Put(put) => model.put(put).map(|response| format!("{response:?}")),
        Entry::Delete(delete) => Ok(format!("{:?}", model.delete(delete))),
        Entry::Txn(txn) => model.txn(txn).map(|response| format!("{response:?}")),
        Entry::Compact(revision) => model
            .compact(*revision)
            .map(|response| format!("{response:?}")),
        Entry::Grant(lease) => {
            model.leases.insert(*lease);
            Ok(String::new())
        }
        Entry::Revoke(lease) => {
            model.revoke(*lease);
            Ok(String::new())
        }
    }
}

fn key() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["a", "ab", "b", "b\0", "c", "d", "\u{7f}"])
        .prop_map(|key| Bytes::from_static(key.as_bytes()))
}

fn range_end() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["", "", "", "\0", "a", "b", "c", "e"])
        .prop_map(|key| Bytes::from_static(key.as_bytes()))
}

fn value() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from)
}

fn put() -> impl Strategy<Value = PutRequest> {
    (key(), value(), 0..4i64, any::<bool>(), 0..8u8).prop_map(
        |(key, value, lease, prev_kv, ignore)| {
            let ignore_value = ignore == 0;
            let ignore_lease = ignore <= 1;
            PutRequest {
                key,
                value: if ignore_value { Bytes::new() } else { value },
                lease: if ignore_lease { 0 } else { lease },
                prev_kv,
                ignore_value,
                ignore_lease,
            }
        },
    )
}

fn delete() -> impl Strategy<Value = DeleteRangeRequest> {
    (key(), range_end(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| DeleteRangeRequest {
        key,
        range_end,
        prev_kv,
    })
}

/// Revisions are offsets; see [`Harness::absolute`].
fn range() -> impl Strategy<Value = RangeRequest> {
    let bounds = || prop_oneof![4 => Just(0), 1 => 1..20i64];
    (
        (
            key(),
            range_end(),
            0..5i64,
            prop_oneof![2 => Just(0), 1 => 1..30i64],
        ),
        (0..3i32, 0..5i32, any::<bool>(), 0..6u8),
        (bounds(), bounds(), bounds(), bounds()),
    )
        .prop_map(
            |((key, range_end, limit, revision), options, bounds)| RangeRequest {
                key,
                range_end,
                limit,
                revision,
                sort_order: options.0,
                sort_target: options.1,
                serializable: true,
                keys_only: options.2,
                count_only: options.3 == 0,
                min_mod_revision: bounds.0,
                max_mod_revision: bounds.1,
                min_create_revision: bounds.2,
                max_create_revision: bounds.3,
            },
        )
        .prop_map(|mut range| {
            // Half of them plain, as clients send them.
            if range.limit % 2 == 0 {
                range.sort_order = SortOrder::None as i32;
                range.sort_target = SortTarget::Key as i32;
                range.min_mod_revision = 0;
                range.max_mod_revision = 0;
                range.min_create_revision = 0;
                range.max_create_revision = 0;
            }
            range
        })
}

fn compare() -> impl Strategy<Value = Compare> {
    (key(), range_end(), 0..4i32, 0..5i32, 0..12i64, value()).prop_map(
        |(key, range_end, result, target, number, value)| Compare {
            result: CompareResult::try_from(result).unwrap() as i32,
            target,
            key,
            range_end,
            target_union: Some(match CompareTarget::try_from(target).unwrap() {
                CompareTarget::Version => TargetUnion::Version(number % 4),
                CompareTarget::Create => TargetUnion::CreateRevision(number),
                CompareTarget::Mod => TargetUnion::ModRevision(number),
                CompareTarget::Value => TargetUnion::Value(value),
                CompareTarget::Lease => TargetUnion::Lease(number % 4),
            }),
        },
    )
}

fn txn() -> impl Strategy<Value = TxnRequest> {
    let leaf = prop_oneof![
        3 => put().prop_map(Request::RequestPut),
        2 => delete().prop_map(Request::RequestDeleteRange),
        2 => range().prop_map(Request::RequestRange),
    ]
    .boxed();
    fn level(op: BoxedStrategy<Request>) -> impl Strategy<Value = TxnRequest> {
        let ops = || {
            let op = op.clone().prop_map(|request| RequestOp {
                request: Some(request),
            });
            prop::collection::vec(op, 0..4)
        };
        (prop::collection::vec(compare(), 0..3), ops(), ops()).prop_map(
            |(compare, success, failure)| TxnRequest {
                compare,
                success,
                failure,
            },
        )
    }
    let nested = level(leaf.clone()).prop_map(Request::RequestTxn).boxed();
    let deeper = level(prop_oneof![2 => leaf.clone(), 1 => nested.clone()].boxed())
        .prop_map(Request::RequestTxn)
        .boxed();
    level(prop_oneof![4 => leaf, 1 => nested, 1 => deeper].boxed())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => put().prop_map(|put| Step::Entry(Entry::Put(put))),
        2 => delete().prop_map(|delete| Step::Entry(Entry::Delete(delete))),
        4 => txn().prop_map(|txn| Step::Entry(Entry::Txn(txn))),
        1 => (1..12i64).prop_map(|back| Step::Entry(Entry::Compact(back))),
        1 => (1..4i64).prop_map(|lease| Step::Entry(Entry::Grant(lease))),
        1 => (1..4i64).prop_map(|lease| Step::Entry(Entry::Revoke(lease))),
        6 => range().prop_map(Step::Range),
        1 => (1..4usize).prop_map(Step::CompactionSteps),
        1 => any::<bool>().prop_map(|flush| Step::Reopen { flush }),
        1 => (0..12i64).prop_map(Step::EventsFrom),
        1 => (0..12i64).prop_map(Step::Hash),
    ]
}

fn budget() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![0, 1, 40, 400])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn store_in_memory_agrees_with_the_model(
        steps in prop::collection::vec(step(), 1..150),
        budget in budget(),
    ) {
        let mut harness = Harness::new(None, budget);
        for step in steps {
            harness.run(step);
        }
        harness.hashes_equal(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn store_on_disk_agrees_with_the_model(
        steps in prop::collection::vec(step(), 1..120),
        budget in budget(),
    ) {
        let mut harness = Harness::new(Some(tempfile::tempdir().unwrap()), budget);
        for step in steps {
            harness.run(step);
        }
        harness.hashes_equal(0);
    }
}
