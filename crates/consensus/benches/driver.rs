//! Proposals to commits, and reads, on a real disk (the temporary directory's).
//!
//! `N at once` keeps N proposals of 256 bytes on their way; the time is per
//! proposal.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{
    hint::black_box,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portunus_consensus::{
    Config, Handle, Hooks, NoPeers,
    bootstrap::{self, InitialMember},
    start,
};
use portunus_proto::raftpb::{ConfChange, EntryType};
use portunus_wal::WalOptions;
use prost::Message as _;

/// Starts a member, and a thread that reports how many entries are applied.
fn member(dir: &tempfile::TempDir) -> (Handle, mpsc::Receiver<usize>) {
    let members = [InitialMember {
        name: "a".to_owned(),
        peer_urls: vec!["http://localhost:2380".to_owned()],
    }];
    let wal_dir = dir.path().join("wal");
    let options = WalOptions::default();
    let boot = bootstrap::new_cluster(&wal_dir, options, "a", &members, "").unwrap();
    let hooks = Hooks {
        peers: Box::new(NoPeers),
        on_leadership: Box::new(|_| ()),
        on_fatal: Box::new(|error| panic!("{error}")),
    };
    let (handle, committed) = start(Config::default(), boot.wal, boot.initial, hooks).unwrap();
    let (report, applied) = mpsc::channel();
    thread::spawn({
        let handle = handle.clone();
        move || {
            while let Some(batch) = committed.recv() {
                for entry in &batch.entries {
                    if entry.r#type() == EntryType::EntryConfChange {
                        let change = ConfChange::decode(entry.data.clone()).unwrap();
                        handle.apply_conf_change(&change).unwrap();
                    }
                }
                handle.applied(batch.entries.last().unwrap().index);
                if report.send(batch.entries.len()).is_err() {
                    return;
                }
            }
        }
    });
    // The founder's entry and the leader's.
    let mut seen = 0;
    while seen < 2 {
        seen += applied.recv().unwrap();
    }
    (handle, applied)
}

fn propose(c: &mut Criterion) {
    let mut group = c.benchmark_group("propose to committed, 256 bytes");
    group
        .throughput(Throughput::Elements(1))
        .measurement_time(Duration::from_secs(4));
    for at_once in [1, 10, 100, 1000] {
        let dir = tempfile::tempdir().unwrap();
        let (handle, applied) = member(&dir);
        let data = Bytes::from(vec![7; 256]);
        let syncs_before = handle.status();
        group.bench_function(BenchmarkId::new("at once", at_once), |bencher| {
            bencher.iter_custom(|count| {
                let count = usize::try_from(count).unwrap();
                let (mut sent, mut done) = (0, 0);
                let begin = Instant::now();
                while done < count {
                    while sent < count && sent - done < at_once {
                        handle.propose(data.clone()).unwrap();
                        sent += 1;
                    }
                    done += applied.recv().unwrap();
                }
                begin.elapsed()
            });
        });
        let status = handle.status();
        println!(
            "entries per sync: {:.1}",
            (status.wal_entries - syncs_before.wal_entries) as f64
                / (status.wal_syncs - syncs_before.wal_syncs) as f64
        );
        handle.stop();
    }
    group.finish();
}

fn read_index(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let (handle, _applied) = member(&dir);
    let mut group = c.benchmark_group("read index, sole voter");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one reader", |bencher| {
        bencher.iter(|| black_box(handle.read_index().wait().unwrap()));
    });
    group.bench_function("while writing", |bencher| {
        let writer = {
            let handle = handle.clone();
            let (stop, stopped) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                while stopped.try_recv().is_err() {
                    let _ = handle.propose(Bytes::from_static(&[7; 256]));
                    thread::sleep(Duration::from_micros(50));
                }
            });
            (stop, thread)
        };
        bencher.iter(|| black_box(handle.read_index().wait().unwrap()));
        writer.0.send(()).unwrap();
        writer.1.join().unwrap();
    });
    group.finish();
    handle.stop();
}

criterion_group!(benches, propose, read_index);
criterion_main!(benches);
