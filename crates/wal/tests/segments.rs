//! Segments: next segment, release, opening at a snapshot, lock.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;

use bytes::Bytes;
use portunus_wal::{CreateError, OpenError, ReadError, SnapshotPoint, Wal, valid_snapshots};
use support::{OPTIONS, SEGMENT_BYTES, START, Scratch, entry, payload, snapshot, state};

/// Entries 1 to 60 over several segments, everything committed, snapshots every 10.
fn long_log(scratch: &Scratch) -> Wal {
    let mut wal = scratch.create();
    for index in 1..=60 {
        let data = payload(index, 1000);
        wal.save(Some(&state(1, index)), &[entry(1, index, data)], true)
            .unwrap();
        if index % 10 == 0 {
            wal.save_snapshot(&snapshot(index, 1)).unwrap();
        }
    }
    wal
}

fn at(index: u64) -> SnapshotPoint {
    SnapshotPoint { index, term: 1 }
}

#[test]
fn log_of_many_segments_reads_back_completely() {
    let scratch = Scratch::new();
    let wal = long_log(&scratch);
    assert!(wal.segment_count() >= 4);
    assert_eq!(wal.segment_count(), scratch.segments().len());
    drop(wal);
    let (wal, recovered) = OPTIONS.open(&scratch.dir, START).unwrap();
    assert_eq!(recovered.entries.len(), 60);
    assert_eq!(recovered.hard_state, state(1, 60));
    assert_eq!((wal.last_index(), wal.hard_state()), (60, state(1, 60)));
}

#[test]
fn open_at_a_snapshot_returns_only_later_entries() {
    let scratch = Scratch::new();
    drop(long_log(&scratch));
    for index in [10, 30, 60] {
        let (_, recovered) = OPTIONS.open(&scratch.dir, at(index)).unwrap();
        let indexes: Vec<_> = recovered.entries.iter().map(|e| e.index).collect();
        assert_eq!(indexes, (index + 1..=60).collect::<Vec<_>>());
        assert_eq!(recovered.snapshot, snapshot(index, 1));
    }
    let unknown = OPTIONS.open(&scratch.dir, at(15)).err();
    assert!(matches!(
        unknown,
        Some(OpenError::SnapshotNotFound { index: 15, .. })
    ));
    let other_term = SnapshotPoint { index: 30, term: 2 };
    assert!(matches!(
        OPTIONS.open(&scratch.dir, other_term).err(),
        Some(OpenError::SnapshotTermMismatch { found: 1, .. })
    ));
}

#[test]
fn log_opens_after_segments_were_released() {
    let scratch = Scratch::new();
    let mut wal = long_log(&scratch);
    let before = wal.segment_count();
    assert_eq!(wal.release_to(0).unwrap(), 0);
    let released = wal.release_to(40).unwrap();
    assert!(released >= 2);
    assert_eq!(wal.release_to(40).unwrap(), 0, "nothing more to release");
    assert_eq!(scratch.segments().len(), before - released);

    // Appends continue, and so does the checksum chain.
    wal.save(None, &[entry(1, 61, payload(61, 1000))], true)
        .unwrap();
    drop(wal);
    let (_, recovered) = OPTIONS.open(&scratch.dir, at(40)).unwrap();
    assert_eq!(recovered.entries.len(), 21);
    assert!(matches!(
        OPTIONS.open(&scratch.dir, START).err(),
        Some(OpenError::SnapshotTooOld { index: 0, .. })
    ));
}

#[test]
fn release_keeps_the_tail() {
    let scratch = Scratch::new();
    let mut wal = long_log(&scratch);
    wal.release_to(u64::MAX).unwrap();
    assert_eq!(wal.segment_count(), 1);
    drop(wal);
    let (_, recovered) = OPTIONS.open(&scratch.dir, at(60)).unwrap();
    assert_eq!(
        recovered.hard_state,
        state(1, 60),
        "repeated in each segment"
    );
}

#[test]
fn missing_segment_is_reported_by_name() {
    let scratch = Scratch::new();
    drop(long_log(&scratch));
    let segments = scratch.segments();
    fs::remove_file(&segments[1]).unwrap();
    let error = OPTIONS.open(&scratch.dir, START).err();
    let Some(OpenError::Read(ReadError::MissingSegment { next, .. })) = error else {
        panic!("{error:?}");
    };
    assert_eq!(next.as_str(), segments[2].file_name().unwrap());
}

#[test]
fn second_writer_is_refused_also_after_a_new_segment() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    let locked = || OPTIONS.open(&scratch.dir, START).err();
    assert!(matches!(locked(), Some(OpenError::Locked { .. })));
    wal.save(
        None,
        &[entry(1, 1, payload(1, SEGMENT_BYTES as usize))],
        true,
    )
    .unwrap();
    assert_eq!(wal.segment_count(), 2);
    assert!(matches!(locked(), Some(OpenError::Locked { .. })));
    drop(wal);
    assert!(locked().is_none());
}

#[test]
fn create_never_overwrites_and_removes_an_interrupted_creation() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.dir.with_extension("tmp")).unwrap();
    fs::write(scratch.dir.with_extension("tmp").join("junk"), "junk").unwrap();
    fs::create_dir(&scratch.dir).unwrap();
    drop(scratch.create());
    assert!(!scratch.dir.join("junk").exists());
    assert!(!scratch.dir.with_extension("tmp").exists());
    let again = OPTIONS.create(&scratch.dir, Bytes::new()).err();
    assert!(matches!(again, Some(CreateError::NotEmpty { .. })));

    let empty = Scratch::new();
    fs::create_dir(&empty.dir).unwrap();
    assert!(matches!(
        OPTIONS.open(&empty.dir, START).err(),
        Some(OpenError::Read(ReadError::NoLog { .. }))
    ));
}

#[test]
fn snapshot_is_valid_once_its_index_is_committed() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    let entries: Vec<_> = (1..=4).map(|index| entry(1, index, "x")).collect();
    wal.save(Some(&state(1, 2)), &entries, true).unwrap();
    wal.save_snapshot(&snapshot(2, 1)).unwrap();
    wal.save_snapshot(&snapshot(4, 1)).unwrap();
    let indexes = |dir| -> Vec<u64> {
        let valid = valid_snapshots(dir).unwrap();
        valid.iter().map(|snapshot| snapshot.index).collect()
    };
    assert_eq!(indexes(&scratch.dir), [0, 2]);
    wal.save(Some(&state(1, 4)), &[], true).unwrap();
    assert_eq!(indexes(&scratch.dir), [0, 2, 4]);
}

#[test]
fn snapshot_ahead_of_the_log_replaces_the_entries_it_covers() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    wal.save(Some(&state(1, 0)), &[entry(1, 1, "x")], true)
        .unwrap();
    wal.save_snapshot(&snapshot(100, 3)).unwrap();
    wal.save(Some(&state(3, 100)), &[entry(3, 101, "y")], true)
        .unwrap();
    drop(wal);
    let from = SnapshotPoint {
        index: 100,
        term: 3,
    };
    let (wal, recovered) = OPTIONS.open(&scratch.dir, from).unwrap();
    assert_eq!(recovered.entries, [entry(3, 101, "y")]);
    drop(wal);
    let from_start = OPTIONS.open(&scratch.dir, START).err().unwrap();
    assert!(
        from_start.to_string().contains("are missing"),
        "{from_start}"
    );
}

fn terms(entries: &[portunus_proto::raftpb::Entry]) -> Vec<(u64, u64)> {
    entries.iter().map(|it| (it.index, it.term)).collect()
}

/// Raft discards its whole log when it installs such a snapshot.
#[test]
fn snapshot_of_another_history_replaces_later_entries() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    let old: Vec<_> = (1..=5).map(|index| entry(1, index, "old")).collect();
    wal.save(Some(&state(1, 1)), &old, true).unwrap();
    wal.save_snapshot(&snapshot(3, 2)).unwrap();
    wal.save(Some(&state(2, 3)), &[], true).unwrap();
    drop(wal);

    let from = SnapshotPoint { index: 3, term: 2 };
    let (mut wal, recovered) = OPTIONS.open(&scratch.dir, from).unwrap();
    assert_eq!(terms(&recovered.entries), []);
    wal.save(None, &[entry(2, 4, "new")], true).unwrap();
    drop(wal);
    let (_, recovered) = OPTIONS.open(&scratch.dir, from).unwrap();
    assert_eq!(terms(&recovered.entries), [(4, 2)]);
}

#[test]
fn entries_replaced_before_a_snapshot_are_not_recovered() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    let old: Vec<_> = (1..=5).map(|index| entry(1, index, "old")).collect();
    wal.save(Some(&state(1, 1)), &old, true).unwrap();
    wal.save(Some(&state(2, 3)), &[entry(2, 3, "new")], true)
        .unwrap();
    wal.save_snapshot(&snapshot(3, 2)).unwrap();
    drop(wal);

    let from = SnapshotPoint { index: 3, term: 2 };
    let (_, recovered) = OPTIONS.open(&scratch.dir, from).unwrap();
    assert_eq!(terms(&recovered.entries), []);
    let (_, recovered) = OPTIONS.open(&scratch.dir, START).unwrap();
    assert_eq!(terms(&recovered.entries), [(1, 1), (2, 1), (3, 2)]);
}

/// A crash after the snapshot record and before the snapshot was installed; then the old log
/// continued.
#[test]
fn snapshot_that_was_not_installed_does_not_break_the_log() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    let old: Vec<_> = (1..=5).map(|index| entry(1, index, "old")).collect();
    wal.save(Some(&state(1, 1)), &old, true).unwrap();
    wal.save_snapshot(&snapshot(3, 2)).unwrap();
    wal.save(None, &[entry(1, 6, "old")], true).unwrap();
    let new: Vec<_> = (2..=4).map(|index| entry(2, index, "new")).collect();
    wal.save(Some(&state(2, 3)), &new, true).unwrap();
    drop(wal);
    let from = SnapshotPoint { index: 3, term: 2 };
    let (_, recovered) = OPTIONS.open(&scratch.dir, from).unwrap();
    assert_eq!(terms(&recovered.entries), [(4, 2)]);
}
