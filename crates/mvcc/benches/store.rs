//! Benchmarks of the store alone: no raft, no network.
//!
//! LMDB commits on the write-behind thread in every case. Not measured: memory,
//! the effect of other threads on a small machine, and reads of evicted values.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portunus_mvcc::{
    Config, EntryId, Hooks, RangeResults, Reader, Store,
    backend::{Lmdb, LmdbConfig},
};
use portunus_proto::Term;
use portunus_proto::etcdserverpb::{
    Compare, PutRequest, RangeRequest, RequestOp, TxnRequest,
    compare::{CompareResult, CompareTarget, TargetUnion},
    request_op::Request,
};

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 256;

fn key(number: u64) -> Bytes {
    format!(
        "/registry/pods/namespace-{:03}/pod-{number:08}",
        number % 100
    )
    .into()
}

fn put(number: u64) -> PutRequest {
    PutRequest {
        key: key(number),
        value: Bytes::from(vec![number as u8; VALUE_BYTES]),
        ..PutRequest::default()
    }
}

struct Loaded {
    store: Store,
    index: u64,
    next: u64,
    directory: tempfile::TempDir,
}

impl Loaded {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut loaded = Self {
            store: open(&directory),
            index: 0,
            next: 0,
            directory,
        };
        for number in 0..KEYS {
            loaded.apply_put(number);
        }
        loaded.store.flush().expect("a commit");
        loaded
    }

    fn apply_put(&mut self, number: u64) {
        let request = put(number);
        self.index += 1;
        let entry = EntryId {
            index: self.index,
            term: Term(1),
        };
        self.store.begin(entry).expect("the next entry");
        let applied = self.store.put(&request, &|_| true).expect("a put");
        self.store.end().expect("the end of the entry");
        let _ = black_box(applied);
    }

    /// Applies the transaction that kube-apiserver sends for an update.
    fn apply_update(&mut self, number: u64, mod_revision: i64) {
        let put = put(number);
        let request = TxnRequest {
            compare: vec![Compare {
                result: CompareResult::Equal as i32,
                target: CompareTarget::Mod as i32,
                key: put.key.clone(),
                target_union: Some(TargetUnion::ModRevision(mod_revision)),
                ..Compare::default()
            }],
            failure: vec![RequestOp {
                request: Some(Request::RequestRange(RangeRequest {
                    key: put.key.clone(),
                    ..RangeRequest::default()
                })),
            }],
            success: vec![RequestOp {
                request: Some(Request::RequestPut(put)),
            }],
        };
        self.index += 1;
        let entry = EntryId {
            index: self.index,
            term: Term(1),
        };
        self.store.begin(entry).expect("the next entry");
        let applied = self
            .store
            .txn(&request, &|_| true, RangeResults::Wanted)
            .expect("a transaction");
        self.store.end().expect("the end of the entry");
        let _ = black_box(applied);
    }

    fn overwrite(&mut self) {
        // A step that visits every key before it repeats.
        self.next = (self.next + 7919) % KEYS;
        self.apply_put(self.next);
    }
}

fn open(directory: &tempfile::TempDir) -> Store {
    let backend = Lmdb::open(directory.path(), LmdbConfig::default()).expect("LMDB");
    let opened = Store::open(Arc::new(backend), Config::default(), Hooks::default());
    opened.expect("a store").0
}

fn get(reader: &Reader, number: u64) {
    let request = RangeRequest {
        key: key(number),
        ..RangeRequest::default()
    };
    black_box(reader.range(&request).expect("a range"));
}

fn range(reader: &Reader, limit: i64) {
    let request = RangeRequest {
        key: Bytes::from_static(b"/registry/pods/"),
        range_end: Bytes::from_static(b"/registry/pods0"),
        limit,
        ..RangeRequest::default()
    };
    let response = reader.range(&request).expect("a range");
    assert_eq!(response.kvs.len() as i64, limit);
    black_box(response);
}

/// One namespace: a range that is returned whole.
fn namespace(reader: &Reader) {
    let request = RangeRequest {
        key: Bytes::from_static(b"/registry/pods/namespace-042/"),
        range_end: Bytes::from_static(b"/registry/pods/namespace-0420"),
        ..RangeRequest::default()
    };
    black_box(reader.range(&request).expect("a range"));
}

fn count(reader: &Reader) {
    let request = RangeRequest {
        key: Bytes::from_static(b"/registry/pods/"),
        range_end: Bytes::from_static(b"/registry/pods0"),
        count_only: true,
        ..RangeRequest::default()
    };
    black_box(reader.range(&request).expect("a count"));
}

fn writes(c: &mut Criterion) {
    let mut group = c.benchmark_group("apply");
    group.throughput(Throughput::Elements(1));
    group.bench_function("create", |b| {
        let mut loaded = Loaded::new();
        let mut number = KEYS;
        b.iter(|| {
            number += 1;
            loaded.apply_put(number);
        });
    });
    let mut loaded = Loaded::new();
    group.bench_function("overwrite", |b| b.iter(|| loaded.overwrite()));
    group.bench_function("compare-and-swap that fails and reads", |b| {
        b.iter(|| loaded.apply_update(77, 1));
    });
    group.finish();
}

fn reads(c: &mut Criterion) {
    let mut loaded = Loaded::new();
    let reader = loaded.store.reader();
    let mut group = c.benchmark_group("quiet");
    let mut number = 0;
    group.bench_function("get", |b| {
        b.iter(|| {
            number = (number + 7919) % KEYS;
            get(&reader, number);
        });
    });
    group.bench_function("range 500 of 100k", |b| b.iter(|| range(&reader, 500)));
    group.bench_function("range 10k of 100k", |b| b.iter(|| range(&reader, 10_000)));
    group.bench_function("range 1000 of 1000", |b| b.iter(|| namespace(&reader)));
    group.bench_function("count 100k", |b| b.iter(|| count(&reader)));
    group.finish();

    let stop = Arc::new(AtomicBool::new(false));
    let stop_writer = Arc::clone(&stop);
    let writer = std::thread::spawn(move || {
        let begun = Instant::now();
        let first = loaded.index;
        while !stop_writer.load(Ordering::Relaxed) {
            loaded.overwrite();
        }
        let rate = (loaded.index - first) as f64 / begun.elapsed().as_secs_f64();
        println!("writer while being read: {rate:.0} puts/s");
        loaded
    });
    let mut group = c.benchmark_group("while writing");
    group.bench_function("get", |b| {
        b.iter(|| {
            number = (number + 7919) % KEYS;
            get(&reader, number);
        });
    });
    group.bench_function("range 500 of 100k", |b| b.iter(|| range(&reader, 500)));
    group.bench_function("range 10k of 100k", |b| b.iter(|| range(&reader, 10_000)));
    group.finish();
    stop.store(true, Ordering::Relaxed);
    drop(writer.join());
}

fn reopen(c: &mut Criterion) {
    let Loaded {
        store, directory, ..
    } = Loaded::new();
    store.close().expect("a flush");
    c.bench_function("reopen 100k keys", |b| {
        b.iter_custom(|iterations| {
            let mut total = Duration::ZERO;
            for _ in 0..iterations {
                let begun = Instant::now();
                let store = open(&directory);
                total += begun.elapsed();
                drop(store);
            }
            total
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = writes, reads, reopen
}
criterion_main!(benches);
