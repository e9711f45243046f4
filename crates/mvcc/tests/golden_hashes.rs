//! Compares hashes with those of a real etcd for a recorded history.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use portunus_mvcc::{
    CompactionStep, Config, EntryId, Hooks, RangeResults, Store,
    backend::{Backend, Bucket, Lmdb, LmdbConfig, MemoryBackend},
};
use portunus_proto::LeaseId;
use portunus_proto::Term;
use portunus_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, request_op::Request,
};

const RECORDED: &str = include_str!("golden/etcd-3.7.1.txt");

struct Replay<F> {
    open: F,
    store: Option<Store>,
    reopen_before_hash: bool,
    index: u64,
    hashes_compared: usize,
}

impl<F: Fn() -> Arc<dyn Backend>> Replay<F> {
    fn run(open: F, reopen_before_hash: bool) -> usize {
        let mut replay = Self {
            open,
            store: None,
            reopen_before_hash,
            index: 0,
            hashes_compared: 0,
        };
        replay.reopen();
        for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
            replay.line(line);
        }
        replay.hashes_compared
    }

    fn reopen(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().unwrap();
        }
        let config = Config {
            compaction_batch_limit: 2,
            ..Config::default()
        };
        let (store, _) = Store::open((self.open)(), config, Hooks::default()).unwrap();
        self.store = Some(store);
    }

    fn line(&mut self, line: &str) {
        let fields: Vec<&str> = line.split(' ').collect();
        if fields[0] == "hashkv" {
            return self.compare_hash(line, &fields);
        }
        self.index += 1;
        let store = self.store.as_mut().unwrap();
        store
            .begin(EntryId {
                index: self.index,
                term: Term(2),
            })
            .unwrap();
        match fields[0] {
            "txn" => {
                let success = line[4..].split(" ; ").map(op).collect();
                let txn = TxnRequest {
                    success,
                    ..TxnRequest::default()
                };
                let _ = store.txn(&txn, &|_| true, RangeResults::Unwanted).unwrap();
            }
            "compact" => {
                store
                    .compact(&CompactionRequest {
                        revision: fields[1].parse().unwrap(),
                        physical: true,
                    })
                    .unwrap();
            }
            "grant" => {
                let id: i64 = fields[1].parse().unwrap();
                let key = Bytes::copy_from_slice(&id.to_be_bytes());
                store.put_raw(Bucket::Lease, key, Bytes::new()).unwrap();
            }
            "revoke" => {
                let id = LeaseId(fields[1].parse().unwrap());
                drop(store.revoke_lease(id).unwrap());
            }
            _ => match op(line).request.take().unwrap() {
                Request::RequestPut(put) => drop(store.put(&put, &|_| true).unwrap()),
                Request::RequestDeleteRange(delete) => drop(store.delete_range(&delete).unwrap()),
                other => panic!("{other:?}"),
            },
        }
        store.end().unwrap();
        finish_compactions(store);
    }

    fn compare_hash(&mut self, line: &str, fields: &[&str]) {
        if self.reopen_before_hash {
            self.reopen();
        }
        let reader = self.store.as_ref().unwrap().reader();
        let found = reader.hash_kv(fields[1].parse().unwrap()).unwrap();
        // Compaction hashes are cached in memory only, so a restart loses them.
        if found.compact_revision == fields[3].parse::<i64>().unwrap() {
            assert_eq!(found.hash, fields[2].parse::<u32>().unwrap(), "{line}");
            self.hashes_compared += 1;
        } else {
            assert!(self.reopen_before_hash, "{line}: {found:?}");
        }
    }
}

fn finish_compactions(store: &mut Store) {
    loop {
        match store.compaction_step().unwrap() {
            CompactionStep::Idle => break,
            CompactionStep::Hash(job) => drop(job.run().unwrap()),
            CompactionStep::Waiting => std::thread::sleep(Duration::from_micros(50)),
            CompactionStep::Working | CompactionStep::Finished { .. } => {}
        }
    }
}

fn op(text: &str) -> RequestOp {
    let fields: Vec<&str> = text.split(' ').collect();
    let request = match fields[0] {
        "put" => Request::RequestPut(PutRequest {
            key: bytes(fields[1]),
            value: bytes(fields[2]),
            lease: fields[3].parse().unwrap(),
            ..PutRequest::default()
        }),
        "del" => Request::RequestDeleteRange(DeleteRangeRequest {
            key: bytes(fields[1]),
            range_end: bytes(fields[2]),
            prev_kv: false,
        }),
        other => panic!("unknown operation {other}"),
    };
    RequestOp {
        request: Some(request),
    }
}

fn bytes(hex: &str) -> Bytes {
    let digits = hex.trim_matches('-').as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn recorded_hashes() -> usize {
    RECORDED
        .lines()
        .filter(|line| line.starts_with("hashkv"))
        .count()
}

#[test]
fn running_store_hashes_equal_etcd() {
    let memory = MemoryBackend::new();
    let compared = Replay::run(|| Arc::new(memory.clone()), false);
    assert_eq!(compared, recorded_hashes());
}

#[test]
fn restarted_store_hashes_equal_etcd() {
    let memory = MemoryBackend::new();
    let compared = Replay::run(|| Arc::new(memory.clone()), true);
    assert!(compared > recorded_hashes() / 2);
}

#[test]
fn store_on_disk_hashes_equal_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Backend> {
        Arc::new(Lmdb::open(directory.path(), LmdbConfig::default()).unwrap())
    };
    let compared = Replay::run(open, true);
    assert!(compared > recorded_hashes() / 2);
}
