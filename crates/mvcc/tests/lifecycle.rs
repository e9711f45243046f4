//! Opening, crashing, failing, closing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use bytes::Bytes;
use portunus_mvcc::{
    ApplyError, Commits, CompactionStep, Config, EntryId, Hooks, OpenError, ReadError, Restored,
    Store, StoreFault,
    backend::{Backend, Bucket, Change, MemoryBackend, meta},
    revision::{RecordKey, Revision, encode_mark},
};
use portunus_proto::Term;
use portunus_proto::{
    EtcdError, LeaseId,
    etcdserverpb::{CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest},
    mvccpb::KeyValue,
};

/// A configuration that commits only on a flush.
fn commit_on_flush() -> Config {
    Config {
        commit_interval: Duration::from_secs(3600),
        ..Config::default()
    }
}

fn open_with(backend: &MemoryBackend, config: Config) -> (Store, Restored) {
    Store::open(Arc::new(backend.clone()), config, Hooks::default()).unwrap()
}

fn open(backend: &MemoryBackend) -> (Store, Restored) {
    open_with(backend, commit_on_flush())
}

fn entry(index: u64) -> EntryId {
    EntryId {
        index,
        term: Term(3),
    }
}

fn put(store: &mut Store, index: u64, key: &'static str, lease: i64) {
    store.begin(entry(index)).unwrap();
    let request = PutRequest {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(b"value"),
        lease,
        ..PutRequest::default()
    };
    let _ = store.put(&request, &|_| true).unwrap();
    store.end().unwrap();
}

fn delete(store: &mut Store, index: u64, key: &'static str) {
    store.begin(entry(index)).unwrap();
    let request = DeleteRangeRequest {
        key: Bytes::from_static(key.as_bytes()),
        ..DeleteRangeRequest::default()
    };
    let _ = store.delete_range(&request).unwrap();
    store.end().unwrap();
}

fn compact(store: &mut Store, index: u64, revision: i64) {
    store.begin(entry(index)).unwrap();
    let request = CompactionRequest {
        revision,
        physical: false,
    };
    store.compact(&request).unwrap();
    store.end().unwrap();
}

fn finish_compactions(store: &mut Store) {
    store.flush().unwrap();
    loop {
        match store.compaction_step().unwrap() {
            CompactionStep::Idle => break,
            CompactionStep::Hash(job) => drop(job.run().unwrap()),
            _ => {}
        }
    }
}

fn get(store: &Store, key: &'static str) -> Option<KeyValue> {
    let request = RangeRequest {
        key: Bytes::from_static(key.as_bytes()),
        ..RangeRequest::default()
    };
    store.reader().range(&request).unwrap().kvs.pop()
}

fn stored_records(backend: &MemoryBackend) -> usize {
    let mut records = 0;
    let snapshot = backend.snapshot().unwrap();
    let mut count = |_: &[u8], _: &[u8]| {
        records += 1;
        std::ops::ControlFlow::Continue(())
    };
    snapshot.scan(Bucket::Key, b"", &mut count).unwrap();
    records
}

#[test]
fn fresh_store_is_at_revision_one_and_never_compacted() {
    let (store, restored) = open(&MemoryBackend::new());
    assert_eq!((store.revision(), store.compact_revision()), (1, -1));
    assert_eq!(restored.applied, None);
}

#[test]
fn commit_is_atomic_with_index_and_term() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    put(&mut store, 7, "a", 0);
    store.flush().unwrap();
    put(&mut store, 8, "b", 0);
    drop(store);
    let (store, restored) = open(&backend);
    assert_eq!(restored.applied, Some(entry(7)));
    assert_eq!(store.applied(), Some(entry(7)));
    assert!(get(&store, "a").is_some());
    assert_eq!(
        get(&store, "b"),
        None,
        "not committed, so replayed from the log"
    );
}

#[test]
fn entry_without_changes_advances_the_index() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    store.begin(entry(4)).unwrap();
    store.end().unwrap();
    store.close().unwrap();
    assert_eq!(open(&backend).1.applied, Some(entry(4)));
}

#[test]
fn readers_see_an_entry_only_after_it_ends() {
    let (mut store, _) = open(&MemoryBackend::new());
    let reader = store.reader();
    store.begin(entry(1)).unwrap();
    let request = PutRequest {
        key: Bytes::from_static(b"a"),
        ..PutRequest::default()
    };
    let _ = store.put(&request, &|_| true).unwrap();
    assert_eq!(reader.revision(), 1);
    assert_eq!(get(&store, "a"), None);
    store.end().unwrap();
    assert_eq!(reader.revision(), 2);
    assert!(get(&store, "a").is_some());
}

#[test]
fn entries_out_of_order_are_refused() {
    let (mut store, _) = open(&MemoryBackend::new());
    put(&mut store, 5, "a", 0);
    let again = store.begin(entry(5));
    assert!(matches!(
        again,
        Err(ApplyError::IndexWentBack {
            offered: 5,
            applied: 5
        })
    ));
    store.begin(entry(6)).unwrap();
    assert!(matches!(
        store.begin(entry(7)),
        Err(ApplyError::EntryNotEnded(6))
    ));
    store.end().unwrap();
    let outside = store.delete_range(&DeleteRangeRequest::default());
    assert!(matches!(outside, Err(ApplyError::OutsideEntry)));
}

#[test]
fn raw_entries_share_the_commit_and_are_readable_at_once() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    let member = |store: &Store| store.get_raw(Bucket::Members, b"1").cloned();
    store.begin(entry(1)).unwrap();
    store
        .put_raw(
            Bucket::Members,
            Bytes::from_static(b"1"),
            Bytes::from_static(b"{}"),
        )
        .unwrap();
    assert!(member(&store).is_some(), "before anything is committed");
    store.end().unwrap();
    store.flush().unwrap();
    store.begin(entry(2)).unwrap();
    store.delete_raw(Bucket::Members, b"1").unwrap();
    assert_eq!(member(&store), None);
    store.end().unwrap();
    drop(store);
    let (store, _) = open(&backend);
    assert!(member(&store).is_some(), "the delete was not committed");
}

#[test]
fn failed_commit_poisons_the_store_and_calls_the_hook_once() {
    let backend = MemoryBackend::new();
    let (sender, receiver) = mpsc::channel();
    let hooks = Hooks::default().on_fault(move |fault| sender.send(fault.to_string()).unwrap());
    let (mut store, _) = Store::open(Arc::new(backend.clone()), commit_on_flush(), hooks).unwrap();
    put(&mut store, 1, "a", 0);
    backend.fail_next_commit();
    assert!(matches!(store.flush(), Err(StoreFault::CommitFailed(_))));
    assert!(receiver.recv().unwrap().contains("commit"));
    assert!(
        receiver.recv().is_err(),
        "called once, and the thread has ended"
    );

    store.begin(entry(2)).unwrap();
    assert!(matches!(
        store.end(),
        Err(ApplyError::Fault(StoreFault::CommitFailed(_)))
    ));
    assert!(matches!(
        store.reader().hash_kv(0),
        Err(ReadError::Fault(StoreFault::CommitFailed(_)))
    ));
    drop(store);
    assert_eq!(stored_records(&backend), 0);
}

#[test]
fn applying_waits_at_the_pending_limit_and_continues_after_the_commit() {
    let config = Config {
        commit_interval: Duration::from_secs(3600),
        commit_records: 1000,
        pending_bytes_max: 2000,
        ..Config::default()
    };
    let backend = MemoryBackend::new();
    let (mut store, _) = open_with(&backend, config);
    for index in 1..200 {
        put(&mut store, index, "a", 0);
    }
    store.flush().unwrap();
    assert_eq!(stored_records(&backend), 199);
}

#[test]
fn full_batch_is_committed_before_the_interval_ends() {
    let config = Config {
        commit_records: 10,
        ..commit_on_flush()
    };
    let backend = MemoryBackend::new();
    let (mut store, _) = open_with(&backend, config);
    for index in 1..=10 {
        put(&mut store, index, "a", 0);
    }
    while stored_records(&backend) < 10 {
        std::thread::yield_now();
    }
}

#[test]
fn attachments_are_restored_for_existing_keys_only() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    put(&mut store, 1, "gone", 5);
    put(&mut store, 2, "moved", 5);
    put(&mut store, 3, "detached", 5);
    put(&mut store, 4, "kept", 5);
    delete(&mut store, 5, "gone");
    put(&mut store, 6, "moved", 6);
    put(&mut store, 7, "detached", 0);
    store.close().unwrap();
    let (store, restored) = open(&backend);
    let expected =
        [(5, "kept"), (6, "moved")].map(|(lease, key)| (LeaseId(lease), Bytes::from(key)));
    assert_eq!(restored.attachments, expected);
    assert_eq!(store.reader().keys_of(LeaseId(5)), [Bytes::from("kept")]);
}

#[test]
fn interrupted_compaction_is_resumed_after_a_restart() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    for index in 1..=5 {
        put(&mut store, index, "a", 0);
    }
    compact(&mut store, 6, 5);
    store.flush().unwrap();
    drop(store);
    assert_eq!(stored_records(&backend), 5, "nothing was removed yet");
    let (mut store, restored) = open(&backend);
    assert_eq!(restored.compact_revision, 5);
    finish_compactions(&mut store);
    assert!(
        store.reader().compaction_hashes().is_empty(),
        "unknown after a restart"
    );
    store.close().unwrap();
    assert_eq!(stored_records(&backend), 2);
    assert_eq!(open(&backend).1.compact_revision, 5);
}

#[test]
fn hash_at_revision_zero_ignores_the_hash_of_a_compaction_to_zero() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    put(&mut store, 1, "a", 0);
    let before = store.reader().hash_kv(0).unwrap();
    compact(&mut store, 2, 0);
    finish_compactions(&mut store);
    let hash = store.reader().hash_kv(0).unwrap();
    assert_eq!(hash.revision, before.revision);
    assert_eq!(hash.hash, before.hash);
}

#[test]
fn restored_revision_is_at_least_the_compact_revision() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    put(&mut store, 1, "a", 0);
    delete(&mut store, 2, "a");
    put(&mut store, 3, "b", 0);
    delete(&mut store, 4, "b");
    compact(&mut store, 5, 5);
    finish_compactions(&mut store);
    store.close().unwrap();
    let (mut store, restored) = open(&backend);
    assert_eq!((restored.revision, restored.compact_revision), (5, 5));
    put(&mut store, 6, "c", 0);
    assert_eq!(store.revision(), 6);
}

#[test]
fn next_compaction_removes_records_left_below_the_last_one() {
    let backend = MemoryBackend::new();
    let record = |main, key: &'static str| Change::PutRecord {
        key: RecordKey::put(Revision { main, sub: 0 }),
        record: KeyValue {
            key: Bytes::from_static(key.as_bytes()),
            mod_revision: main,
            create_revision: main,
            version: 1,
            ..KeyValue::default()
        },
    };
    let tombstone = Change::PutRecord {
        key: RecordKey::tombstone(Revision { main: 4, sub: 0 }),
        record: KeyValue {
            key: Bytes::from_static(b"lone"),
            ..KeyValue::default()
        },
    };
    let mark = Change::Put {
        bucket: Bucket::Meta,
        key: Bytes::from_static(meta::FINISHED_COMPACT.as_bytes()),
        value: Bytes::copy_from_slice(&encode_mark(6)),
    };
    let changes = [
        record(2, "a"),
        record(3, "a"),
        tombstone,
        record(7, "b"),
        mark,
    ];
    backend.commit(&changes).unwrap();
    let (mut store, restored) = open(&backend);
    assert_eq!((restored.revision, restored.compact_revision), (7, 6));
    assert_eq!(get(&store, "lone"), None);
    compact(&mut store, 1, 7);
    finish_compactions(&mut store);
    store.close().unwrap();
    assert_eq!(stored_records(&backend), 2);
}

#[test]
fn empty_record_raises_the_revision_without_adding_a_key() {
    let backend = MemoryBackend::new();
    let bumped = Change::PutRecord {
        key: RecordKey::put(Revision { main: 1000, sub: 0 }),
        record: KeyValue::default(),
    };
    backend.commit(&[bumped]).unwrap();
    let (mut store, restored) = open(&backend);
    assert_eq!(restored.revision, 1000);
    let everything = RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        ..RangeRequest::default()
    };
    assert_eq!(store.reader().range(&everything).unwrap().count, 0);
    put(&mut store, 1, "a", 0);
    assert_eq!(store.revision(), 1001);
}

#[test]
fn open_refuses_foreign_and_damaged_entries() {
    let put = |bucket, key: &'static str, value: &'static [u8]| Change::Put {
        bucket,
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(value),
    };
    let good_key = "\0\0\0\0\0\0\0\u{2}_\0\0\0\0\0\0\0\0";
    let open = |change| {
        let backend = MemoryBackend::new();
        backend.commit(&[change]).unwrap();
        Store::open(Arc::new(backend), Config::default(), Hooks::default()).unwrap_err()
    };
    let foreign = open(put(Bucket::Key, "no revision", b""));
    assert!(matches!(foreign, OpenError::ForeignRecord { .. }));
    let damaged = open(put(Bucket::Key, good_key, b"\xff"));
    assert!(matches!(damaged, OpenError::DamagedRecord { .. }));
    let mark = open(put(Bucket::Meta, meta::FINISHED_COMPACT, b"short"));
    assert!(matches!(mark, OpenError::DamagedMeta { .. }));
}

/// A watch that catches up takes about 1 MiB in one response. Reading 1000 revisions for each would
/// read large values again and again, and hold all of them in memory.
#[test]
fn events_are_collected_up_to_a_number_of_bytes_in_whole_revisions() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    let value_bytes = [10, 600_000, 600_000, 10, 3_000_000, 10, 10];
    for (index, bytes) in (1..).zip(value_bytes) {
        store.begin(entry(index)).unwrap();
        let request = PutRequest {
            key: Bytes::from_static(b"key"),
            value: Bytes::from(vec![b'v'; bytes]),
            ..PutRequest::default()
        };
        let _ = store.put(&request, &|_| true).unwrap();
        store.end().unwrap();
    }
    let reader = store.reader();
    let collected = |from| {
        let revisions = reader.events_since(from, 100).unwrap();
        revisions.iter().map(|it| it.revision).collect::<Vec<_>>()
    };
    assert_eq!(collected(2), [2, 3, 4]);
    assert_eq!(collected(5), [5, 6]);
    // One that is larger than the limit is complete, and the last.
    assert_eq!(collected(6), [6]);
    assert_eq!(collected(7), [7, 8]);
    assert_eq!(collected(9), Vec::<i64>::new());
}

#[test]
fn overlapping_compactions_finish_in_order() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    for index in 1..=20 {
        put(&mut store, index, "a", 0);
    }
    compact(&mut store, 21, 5);
    compact(&mut store, 22, 15);
    assert!(matches!(
        store.reader().events_since(14, 9),
        Err(ReadError::Refused(EtcdError::Compacted))
    ));
    let mut finished = Vec::new();
    let mut held = None;
    while finished.len() < 2 {
        match store.compaction_step().unwrap() {
            CompactionStep::Finished { revision } => finished.push(revision),
            // The second compaction must not trim what the hash job of the first still reads.
            CompactionStep::Hash(job) => held = Some(job),
            CompactionStep::Waiting if finished == [5] => drop(held.take()),
            CompactionStep::Waiting => store.flush().unwrap(),
            _ => {}
        }
    }
    assert_eq!(finished, [5, 15]);
    assert!(held.is_none(), "the second waited");
    store.flush().unwrap();
    assert_eq!(stored_records(&backend), 7);
}

#[test]
fn progress_is_reported_while_opening() {
    let backend = MemoryBackend::new();
    let (mut store, _) = open(&backend);
    put(&mut store, 1, "a", 0);
    store.close().unwrap();
    let (sender, receiver) = mpsc::channel();
    let hooks = Hooks::default().on_progress(move |progress| sender.send(progress).unwrap());
    let _ = Store::open(Arc::new(backend), Config::default(), hooks).unwrap();
    let last = receiver.iter().last().unwrap();
    assert_eq!((last.records, last.revision), (1, 2));
}

/// What the caller has not committed is lost in a crash, as with the thread.
#[test]
fn store_that_commits_on_call_keeps_what_was_committed() {
    let backend = MemoryBackend::new();
    let config = Config {
        commits: Commits::OnCall,
        pending_records_max: 4,
        ..Config::default()
    };
    let open = || {
        let backend = Arc::new(backend.clone());
        Store::open(backend, config.clone(), Hooks::default()).unwrap()
    };
    let (mut store, _) = open();
    put(&mut store, 1, "a", 0);
    store.commit().unwrap();
    put(&mut store, 2, "b", 0);
    drop(store);

    let (mut store, restored) = open();
    assert_eq!((restored.applied.unwrap().index, restored.revision), (1, 2));
    put(&mut store, 2, "b", 0);
    store.reader().flush().unwrap();
    // At the limit of pending records applying commits by itself.
    for index in 3..=8 {
        put(&mut store, index, "c", 0);
    }
    drop(store);
    let (_, restored) = open();
    assert_eq!(restored.applied.unwrap().index, 6);
}
