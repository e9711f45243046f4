//! Concurrent readers never see part of a transaction.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use portunus_mvcc::{
    CompactionStep, Config, EntryId, Hooks, RangeResults, ReadError, Reader, Store,
    backend::{Lmdb, LmdbConfig},
};
use portunus_proto::Term;
use portunus_proto::{
    EtcdError,
    etcdserverpb::{
        CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        request_op::Request,
    },
};

const KEYS: usize = 12;
const ROUNDS: u64 = 3000;

fn key(number: usize) -> Bytes {
    format!("key-{number:02}").into()
}

fn all(revision: i64) -> RangeRequest {
    RangeRequest {
        key: Bytes::from_static(b"key-"),
        range_end: Bytes::from_static(b"key."),
        revision,
        ..RangeRequest::default()
    }
}

/// Every transaction writes the same value to all keys, or removes all but the
/// first and writes that.
fn txn(round: u64) -> TxnRequest {
    let value = Bytes::from(format!("round {round:08} {}", "x".repeat(100)));
    let put = |number| {
        Request::RequestPut(PutRequest {
            key: key(number),
            value: value.clone(),
            ..PutRequest::default()
        })
    };
    let mut ops = vec![put(0)];
    if round.is_multiple_of(3) {
        ops.push(Request::RequestDeleteRange(DeleteRangeRequest {
            key: key(1),
            range_end: Bytes::from_static(b"key."),
            prev_kv: false,
        }));
    } else {
        ops.extend((1..KEYS).map(put));
    }
    let op = |request| RequestOp {
        request: Some(request),
    };
    TxnRequest {
        success: ops.into_iter().map(op).collect(),
        ..TxnRequest::default()
    }
}

fn check_whole(reader: &Reader, requested: i64) {
    let response = match reader.range(&all(requested)) {
        Ok(response) => response,
        Err(ReadError::Refused(EtcdError::Compacted)) if requested > 0 => return,
        Err(error) => panic!("{error}"),
    };
    let read_at = match requested {
        ..=0 => response.header.unwrap().revision,
        named => named,
    };
    if read_at == 1 {
        return;
    }
    let present = response.kvs.len();
    assert!(
        present == 1 || present == KEYS,
        "{present} keys at {read_at}"
    );
    assert_eq!(response.count as usize, present);
    for kv in &response.kvs {
        assert_eq!(kv.mod_revision, read_at, "a key of another transaction");
        assert_eq!(kv.value, response.kvs[0].value);
    }
}

fn check_events(reader: &Reader, from: i64) -> i64 {
    match reader.events_since(from, 50) {
        Ok(revisions) => {
            for (offset, revision) in revisions.iter().enumerate() {
                assert_eq!(revision.revision, from + offset as i64, "a gap");
                assert!(revision.events.len() >= KEYS.min(1));
            }
            from + revisions.len() as i64
        }
        Err(ReadError::Refused(EtcdError::Compacted)) => reader.compact_revision() + 1,
        Err(error) => panic!("{error}"),
    }
}

fn run(resident_value_bytes_max: usize) {
    let directory = tempfile::tempdir().unwrap();
    let backend = Lmdb::open(directory.path(), LmdbConfig::default()).unwrap();
    let config = Config {
        commit_interval: Duration::from_millis(1),
        compaction_batch_limit: 7,
        resident_value_bytes_max,
        ..Config::default()
    };
    let (mut store, _) = Store::open(Arc::new(backend), config, Hooks::default()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|number| {
            let reader = store.reader();
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let mut reads = 0u64;
                let mut from = 2;
                while !done.load(Ordering::Relaxed) || reads < 100 {
                    check_whole(&reader, 0);
                    check_whole(&reader, (reader.revision() - number * 5).max(0));
                    from = check_events(&reader, from);
                    reads += 1;
                }
            })
        })
        .collect();
    for round in 1..=ROUNDS {
        store
            .begin(EntryId {
                index: round,
                term: Term(1),
            })
            .unwrap();
        let applied = store
            .txn(&txn(round), &|_| true, RangeResults::Unwanted)
            .unwrap();
        assert!(applied.events.is_some());
        if round.is_multiple_of(50) {
            let request = CompactionRequest {
                revision: store.revision() - 10,
                physical: false,
            };
            store.compact(&request).unwrap();
        }
        store.end().unwrap();
        if let CompactionStep::Hash(job) = store.compaction_step().unwrap() {
            thread::spawn(move || job.run().unwrap());
        }
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn readers_see_whole_transactions() {
    run(0);
}

#[test]
fn readers_see_whole_transactions_while_values_leave_memory() {
    run(1000);
}
