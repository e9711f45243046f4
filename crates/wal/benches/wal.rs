//! Benchmarks of synced appends and of recovery.
//!
//! Appends measure the disk more than this code: compare runs on one machine
//! only. Recovery reads from the page cache, so it measures checking and
//! decoding, not the disk. Set `TMPDIR` to choose the disk.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portunus_proto::raftpb::{Entry, HardState};
use portunus_wal::{SnapshotPoint, Wal};

const PAYLOAD_BYTES: usize = 1024;
const RECOVERED_ENTRIES: u64 = 200_000;

fn entries(first_index: u64, count: u64, payload: &Bytes) -> Vec<Entry> {
    (first_index..first_index + count)
        .map(|index| Entry {
            term: 1,
            index,
            data: payload.clone(),
            ..Default::default()
        })
        .collect()
}

fn payload() -> Bytes {
    vec![0xa5; PAYLOAD_BYTES].into()
}

fn append_and_sync(c: &mut Criterion) {
    let mut group = c.benchmark_group("append_and_sync_1KiB");
    for batch in [1, 10, 100] {
        let root = tempfile::tempdir().unwrap();
        let mut wal = Wal::create(&root.path().join("wal"), Bytes::new()).unwrap();
        let payload = payload();
        let mut next_index = 1;
        group.throughput(Throughput::Elements(batch));
        group.bench_function(format!("batch_{batch}"), |b| {
            b.iter(|| {
                let batch_entries = entries(next_index, batch, &payload);
                next_index += batch;
                let state = HardState {
                    term: 1,
                    vote: 1,
                    commit: next_index - 1,
                };
                wal.save(Some(&state), &batch_entries, true).unwrap();
            });
            // Keeps the disk from filling up; not part of a save.
            wal.release_to(next_index).unwrap();
        });
    }
    group.finish();
}

fn recovery(c: &mut Criterion) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("wal");
    let mut wal = Wal::create(&dir, Bytes::new()).unwrap();
    let payload = payload();
    for first_index in (1..=RECOVERED_ENTRIES).step_by(1000) {
        wal.save(None, &entries(first_index, 1000, &payload), false)
            .unwrap();
    }
    wal.sync().unwrap();
    drop(wal);

    let mut group = c.benchmark_group("recovery");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(RECOVERED_ENTRIES * PAYLOAD_BYTES as u64));
    group.bench_function("open_200k_entries_of_1KiB", |b| {
        b.iter_custom(|iterations| {
            let mut opening = Duration::ZERO;
            for _ in 0..iterations {
                let start = Instant::now();
                let (wal, recovered) = Wal::open(&dir, SnapshotPoint::default()).unwrap();
                opening += start.elapsed();
                assert_eq!(recovered.entries.len() as u64, RECOVERED_ENTRIES);
                drop(wal);
            }
            opening
        });
    });
    group.finish();
}

criterion_group!(benches, append_and_sync, recovery);
criterion_main!(benches);
