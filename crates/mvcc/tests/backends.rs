//! Rules of every backend, and rules of LMDB alone.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{ops::ControlFlow, path::Path, sync::Arc, thread};

use bytes::Bytes;
use portunus_mvcc::{
    Revision,
    backend::{
        Backend, BackendError, Bucket, Change, Lmdb, LmdbConfig, LmdbLoad, MemoryBackend, Snapshot,
    },
    revision::RecordKey,
};
use portunus_proto::mvccpb::KeyValue;
use prost::Message;

fn record(main: i64, value_bytes: usize) -> Change {
    Change::PutRecord {
        key: RecordKey::put(Revision { main, sub: 0 }),
        record: KeyValue {
            key: Bytes::from_static(b"key"),
            mod_revision: main,
            value: vec![7; value_bytes].into(),
            ..KeyValue::default()
        },
    }
}

fn put(bucket: Bucket, key: impl Into<Bytes>, value: &'static [u8]) -> Change {
    Change::Put {
        bucket,
        key: key.into(),
        value: Bytes::from_static(value),
    }
}

fn entries(snapshot: &dyn Snapshot, bucket: Bucket, from: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut collect = |key: &[u8], value: &[u8]| {
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    snapshot.scan(bucket, from, &mut collect).unwrap();
    entries
}

fn mains(backend: &dyn Backend) -> Vec<i64> {
    entries(&*backend.snapshot().unwrap(), Bucket::Key, b"")
        .iter()
        .map(|(key, _)| RecordKey::decode(key).unwrap().revision.main)
        .collect()
}

fn lmdb(directory: &Path) -> Lmdb {
    Lmdb::open(directory, LmdbConfig::default()).unwrap()
}

fn for_each_backend(check: impl Fn(&dyn Backend)) {
    check(&MemoryBackend::new());
    let directory = tempfile::tempdir().unwrap();
    check(&lmdb(directory.path()));
}

#[test]
fn records_are_stored_in_canonical_form() {
    for_each_backend(|backend| {
        let tombstone = Change::PutRecord {
            key: RecordKey::tombstone(Revision { main: 3, sub: 1 }),
            record: KeyValue {
                key: Bytes::from_static(b"k"),
                ..KeyValue::default()
            },
        };
        backend.commit(&[record(2, 1), tombstone]).unwrap();
        let stored = entries(&*backend.snapshot().unwrap(), Bucket::Key, b"");
        // Field 1 alone: tag, length, key.
        assert_eq!(stored[1].1, [0x0a, 1, b'k']);
        let first = KeyValue::decode(&stored[0].1[..]).unwrap();
        assert_eq!(first.encode_to_vec(), stored[0].1);
    });
}

#[test]
fn snapshot_excludes_later_commits_and_can_be_scanned_twice() {
    for_each_backend(|backend| {
        backend
            .commit(&[record(2, 10), put(Bucket::Members, "a", b"1")])
            .unwrap();
        let snapshot = backend.snapshot().unwrap();
        let delete = Change::DeleteRecord(RecordKey::put(Revision { main: 2, sub: 0 }));
        backend
            .commit(&[delete, put(Bucket::Members, "a", b"2"), record(3, 10)])
            .unwrap();
        for _ in 0..2 {
            assert_eq!(entries(&*snapshot, Bucket::Key, b"").len(), 1);
            let member = snapshot.get(Bucket::Members, b"a").unwrap();
            assert_eq!(member.as_deref(), Some(&b"1"[..]));
        }
        assert_eq!(mains(backend), [3]);
    });
}

#[test]
fn scan_starts_at_the_given_key_and_stops_on_break() {
    for_each_backend(|backend| {
        let changes: Vec<_> = ["a", "b", "c", "d"]
            .map(|k| put(Bucket::Auth, k, b""))
            .into();
        backend.commit(&changes).unwrap();
        let snapshot = backend.snapshot().unwrap();
        let mut seen = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            seen.push(key.to_vec());
            match key {
                b"c" => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        snapshot.scan(Bucket::Auth, b"aa", &mut visit).unwrap();
        assert_eq!(seen, [b"b", b"c"]);
    });
}

#[test]
fn keys_of_any_length_are_scanned_in_order() {
    for_each_backend(|backend| {
        let long = |first: char| format!("{first}{}", "x".repeat(2000));
        let names = [
            long('b'),
            "a".into(),
            "c".into(),
            long('d'),
            "d".into(),
            "b".repeat(511),
        ];
        let changes: Vec<_> = names
            .iter()
            .map(|name| put(Bucket::AuthUsers, name.clone(), b"user"))
            .collect();
        backend.commit(&changes).unwrap();
        // The same long name in another bucket is another entry.
        backend
            .commit(&[put(Bucket::AuthRoles, long('b'), b"role")])
            .unwrap();
        let mut sorted: Vec<_> = names.iter().map(|name| name.clone().into_bytes()).collect();
        sorted.sort();
        let snapshot = backend.snapshot().unwrap();
        let found = |from: &[u8]| -> Vec<_> {
            let entries = entries(&*snapshot, Bucket::AuthUsers, from);
            entries.into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(found(b""), sorted);
        assert_eq!(found(b"c"), sorted[3..]);
        let role = snapshot
            .get(Bucket::AuthRoles, long('b').as_bytes())
            .unwrap();
        assert_eq!(role.as_deref(), Some(&b"role"[..]));

        let delete = Change::Delete {
            bucket: Bucket::AuthUsers,
            key: long('b').into(),
        };
        backend.commit(&[delete]).unwrap();
        let snapshot = backend.snapshot().unwrap();
        assert_eq!(
            snapshot
                .get(Bucket::AuthUsers, long('b').as_bytes())
                .unwrap(),
            None
        );
        assert!(
            snapshot
                .get(Bucket::AuthRoles, long('b').as_bytes())
                .unwrap()
                .is_some()
        );
    });
}

#[test]
fn commit_grows_a_full_map() {
    let directory = tempfile::tempdir().unwrap();
    let config = LmdbConfig {
        map_bytes: 1 << 20,
        ..LmdbConfig::default()
    };
    let lmdb = Arc::new(Lmdb::open(directory.path(), config).unwrap());
    // A snapshot that is open meanwhile delays growing until it is dropped.
    lmdb.commit(&[record(1, 10)]).unwrap();
    let snapshot = lmdb.snapshot().unwrap();
    let writer = {
        let lmdb = Arc::clone(&lmdb);
        thread::spawn(move || {
            for main in 2..40 {
                lmdb.commit(&[record(main, 100_000)]).unwrap();
            }
        })
    };
    assert_eq!(entries(&*snapshot, Bucket::Key, b"").len(), 1);
    drop(snapshot);
    writer.join().unwrap();
    assert_eq!(mains(&*lmdb), (1..40).collect::<Vec<_>>());
    assert!(lmdb.sizes().total_bytes > 1 << 20);
}

#[test]
fn failed_commit_poisons_the_backend() {
    let directory = tempfile::tempdir().unwrap();
    let lmdb = lmdb(directory.path());
    lmdb.commit(&[record(5, 10)]).unwrap();
    // A record out of order cannot be appended; LMDB refuses the whole batch.
    let refused = lmdb.commit(&[record(6, 10), record(4, 10)]);
    assert!(matches!(refused, Err(BackendError::Lmdb { .. })));
    assert!(matches!(
        lmdb.commit(&[record(7, 10)]),
        Err(BackendError::Poisoned)
    ));
    assert_eq!(mains(&lmdb), [5]);
}

fn shrink(lmdb: &Lmdb) -> (u64, u64) {
    let records: Vec<_> = (1..200).map(|main| record(main, 10_000)).collect();
    lmdb.commit(&records).unwrap();
    let deletes: Vec<_> = (1..190)
        .map(|main| Change::DeleteRecord(RecordKey::put(Revision { main, sub: 0 })))
        .collect();
    lmdb.commit(&deletes).unwrap();
    let before = lmdb.sizes();
    assert!(before.in_use_bytes < before.total_bytes / 4);
    lmdb.defragment().unwrap();
    (before.total_bytes, lmdb.sizes().total_bytes)
}

#[test]
fn defragmented_file_is_smaller_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let lmdb_open = lmdb(directory.path());
    let (before, after) = shrink(&lmdb_open);
    assert!(after < before / 4, "{before} to {after}");
    lmdb_open.commit(&[record(200, 10)]).unwrap();
    let expected: Vec<_> = (190..=200).collect();
    assert_eq!(mains(&lmdb_open), expected);
    drop(lmdb_open);
    assert_eq!(mains(&lmdb(directory.path())), expected);
    let files = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, 2, "one database and its lock");
}

#[test]
fn commits_and_snapshots_continue_during_defragmentation() {
    let directory = tempfile::tempdir().unwrap();
    let lmdb_open = Arc::new(lmdb(directory.path()));
    lmdb_open
        .commit(&[put(Bucket::Meta, "mark", b"0")])
        .unwrap();
    let held = lmdb_open.snapshot().unwrap();
    let writer = {
        let lmdb = Arc::clone(&lmdb_open);
        thread::spawn(move || {
            for main in 1..400 {
                lmdb.commit(&[record(main, 500)]).unwrap();
            }
        })
    };
    while !writer.is_finished() {
        lmdb_open.defragment().unwrap();
    }
    writer.join().unwrap();
    assert_eq!(mains(&*lmdb_open), (1..400).collect::<Vec<_>>());
    assert_eq!(
        entries(&*held, Bucket::Key, b"").len(),
        0,
        "as it was when taken"
    );
    drop(held);
    drop(lmdb_open);
    assert_eq!(mains(&lmdb(directory.path())), (1..400).collect::<Vec<_>>());
}

#[test]
fn open_removes_files_of_an_interrupted_defragmentation() {
    let directory = tempfile::tempdir().unwrap();
    lmdb(directory.path()).commit(&[record(1, 10)]).unwrap();
    let leftover = directory
        .path()
        .join("store-0000000000000002.lmdb.unfinished");
    std::fs::write(&leftover, b"half a copy").unwrap();
    assert_eq!(mains(&lmdb(directory.path())), [1]);
    assert!(!leftover.exists());
}

/// An encoded record of another store is stored unchanged.
#[test]
fn encoded_record_is_stored_unchanged() {
    for_each_backend(|backend| {
        let Change::PutRecord { key, record } = record(2, 10) else {
            unreachable!()
        };
        let record = Bytes::from(record.encode_to_vec());
        let encoded = record.clone();
        let change = Change::PutEncodedRecord { key, record };
        backend.commit(&[change]).unwrap();
        let stored = backend.snapshot().unwrap();
        let stored = stored.get(Bucket::Key, &key.encode()).unwrap();
        assert_eq!(stored, Some(encoded));
    });
}

/// A loaded store opens like any other; an abandoned load leaves only a directory to remove.
#[test]
fn loaded_store_opens_with_all_entries() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("new");
    // More than one background sync covers.
    let fill = |load: &mut LmdbLoad| {
        for step in 0..20 {
            let records: Vec<_> = (0..40)
                .map(|main| record(2 + step * 40 + main, 100_000))
                .collect();
            load.add(&records).unwrap();
        }
        load.add(&[put(Bucket::Meta, "term", b"1")]).unwrap();
    };
    let mut given_up = LmdbLoad::create(&directory).unwrap();
    fill(&mut given_up);
    assert!(LmdbLoad::create(&directory).is_err(), "it exists");
    drop(given_up);
    std::fs::remove_dir_all(&directory).unwrap();

    let mut load = LmdbLoad::create(&directory).unwrap();
    fill(&mut load);
    load.finish().unwrap();
    let renamed = parent.path().join("renamed");
    std::fs::rename(&directory, &renamed).unwrap();
    let store = lmdb(&renamed);
    assert_eq!(mains(&store), (2..802).collect::<Vec<_>>());
    store.commit(&[record(802, 10)]).unwrap();
    let snapshot = store.snapshot().unwrap();
    let term = snapshot.get(Bucket::Meta, b"term").unwrap();
    assert_eq!(term.as_deref(), Some(&b"1"[..]));
}

/// Open snapshots must never keep a member from committing.
#[test]
fn commit_needs_no_reader_slot() {
    let directory = tempfile::tempdir().unwrap();
    let config = LmdbConfig {
        snapshots_max: 4,
        ..LmdbConfig::default()
    };
    let lmdb = Lmdb::open(directory.path(), config).unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match lmdb.snapshot() {
            Ok(snapshot) => held.push(snapshot),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, BackendError::Lmdb { .. }), "{refused}");
    assert_eq!(held.len(), 4);
    let before = lmdb.sizes();
    lmdb.commit(&[record(2, 100_000)]).unwrap();
    lmdb.commit(&[record(3, 100_000)]).unwrap();
    assert!(lmdb.sizes().in_use_bytes > before.in_use_bytes + 200_000);
    held.pop();
    assert_eq!(mains(&lmdb), [2, 3]);
}
