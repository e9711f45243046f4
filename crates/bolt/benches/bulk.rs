//! Benchmarks of writing and reading a database of 200 MB, the size of a medium snapshot.
//!
//! Entries look like etcd's `key` bucket: 17-byte ascending keys, values of 1 KiB. The files are in
//! the page cache: the figures show the cost of the format, not of a disk. `plan` and `check` never
//! read values, so their throughput is nominal.

#![allow(missing_docs, clippy::expect_used)]

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portunus_bolt::snapshot::{self, DigestWriter};
use portunus_bolt::{BulkOptions, FileWriter, Layout, Planner, Reader, StreamWriter, check};

const VALUE_BYTES: usize = 1_024;
const ENTRIES: u64 = 200_000_000 / (VALUE_BYTES as u64 + 17);

fn key(n: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[..8].copy_from_slice(&n.to_be_bytes());
    key[8] = b'_';
    key
}

/// A `KeyValue` message with a one-byte key field and the rest in its value field.
fn value() -> Vec<u8> {
    let mut value = b"\x0a\x01k\x2a\xfa\x07".to_vec();
    value.resize(VALUE_BYTES, b'x');
    value
}

fn plan() -> Layout {
    let mut planner = Planner::new(BulkOptions::default());
    planner.bucket(b"key").expect("first bucket");
    for n in 0..ENTRIES {
        planner
            .entry(&key(n), VALUE_BYTES as u64)
            .expect("ascending keys");
    }
    planner.finish().expect("valid plan")
}

fn stream<W: Write>(layout: Layout, out: W) -> W {
    let value = value();
    let mut writer = StreamWriter::new(layout, out).expect("writable");
    writer.bucket(b"key").expect("first bucket");
    for n in 0..ENTRIES {
        writer.entry(&key(n), &value).expect("ascending keys");
    }
    writer.finish().expect("as planned")
}

fn write_file(path: &Path) {
    let value = value();
    let file = File::create(path).expect("temporary directory");
    let mut writer = FileWriter::new(BulkOptions::default(), file).expect("writable");
    writer.bucket(b"key").expect("first bucket");
    for n in 0..ENTRIES {
        writer.entry(&key(n), &value).expect("ascending keys");
    }
    writer.finish().expect("writable");
}

/// Reads every key and every cache line of every value.
fn walk(reader: &Reader) -> u64 {
    let bucket = reader.bucket(b"key").expect("sound").expect("present");
    let mut sum = 0;
    for pair in bucket.iter() {
        let (key, value) = pair.expect("sound");
        black_box(key);
        sum += value
            .iter()
            .step_by(64)
            .map(|byte| u64::from(*byte))
            .sum::<u64>();
    }
    sum
}

fn bulk(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("db");
    let layout = plan();
    write_file(&path);

    let mut group = criterion.benchmark_group("200MB");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(layout.file_bytes()));

    group.bench_function("plan", |bencher| bencher.iter(plan));
    group.bench_function("stream to nowhere", |bencher| {
        bencher.iter(|| stream(layout.clone(), io::sink()))
    });
    group.bench_function("stream with digest to nowhere", |bencher| {
        bencher.iter(|| stream(layout.clone(), DigestWriter::new(io::sink())).finish())
    });
    group.bench_function("write file", |bencher| {
        bencher.iter(|| write_file(&directory.path().join("written")))
    });
    group.bench_function("open and walk, mapped", |bencher| {
        bencher.iter(|| walk(&Reader::open(&path).expect("sound")))
    });
    group.bench_function("open and walk, read into memory", |bencher| {
        bencher.iter(|| {
            let file = std::fs::read(&path).expect("present");
            walk(&Reader::from_bytes(Bytes::from(file)).expect("sound"))
        })
    });
    let reader = Reader::open(&path).expect("sound");
    group.bench_function("check", |bencher| bencher.iter(|| check(&reader)));
    group.bench_function("hash", |bencher| {
        bencher.iter(|| snapshot::hash(&reader, |_, _| false))
    });
    group.finish();
}

criterion_group!(benches, bulk);
criterion_main!(benches);
