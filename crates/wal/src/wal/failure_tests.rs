//! Failures of the disk.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::*;

/// A file on which one kind of call fails.
struct FailingFile {
    fails: &'static str,
    syncs: Arc<AtomicUsize>,
}

impl FailingFile {
    fn result(&self, call: &str) -> io::Result<()> {
        if call == self.fails {
            Err(io::Error::other("injected"))
        } else {
            Ok(())
        }
    }
}

impl DiskFile for FailingFile {
    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        self.result("write")
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn file_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_clone(&self) -> io::Result<Box<dyn DiskFile>> {
        Err(io::Error::other("not supported"))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.result("sync")
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        self.result("set_len")
    }
}

const SMALL: WalOptions = WalOptions {
    segment_bytes: 4096,
};

fn entry(index: u64, payload_bytes: usize) -> Entry {
    Entry {
        term: 1,
        index,
        data: vec![7; payload_bytes].into(),
        ..Default::default()
    }
}

fn wal_failing_on(fails: &'static str) -> (tempfile::TempDir, Wal, Arc<AtomicUsize>) {
    let dir = tempfile::tempdir().unwrap();
    let mut wal = SMALL.create(&dir.path().join("wal"), Bytes::new()).unwrap();
    let syncs = Arc::new(AtomicUsize::new(0));
    wal.tail = Box::new(FailingFile {
        fails,
        syncs: Arc::clone(&syncs),
    });
    (dir, wal, syncs)
}

/// Asserts that every call that writes is refused.
fn assert_poisoned(wal: &mut Wal) {
    let state = HardState {
        term: 1,
        ..Default::default()
    };
    let snapshot = Snapshot::default();
    for result in [
        wal.save(Some(&state), &[], true),
        wal.append(None, &[entry(9, 1)]).map(drop),
        wal.sync(),
        wal.save_snapshot(&snapshot),
    ] {
        assert!(matches!(result, Err(WriteError::Poisoned)), "{result:?}");
    }
}

#[test]
fn failed_write_poisons_the_log_without_a_sync() {
    let (_dir, mut wal, syncs) = wal_failing_on("write");
    let result = wal.save(None, &[entry(1, 1)], true);
    assert!(matches!(result, Err(WriteError::Write { .. })));
    assert_poisoned(&mut wal);
    assert_eq!(syncs.load(Ordering::Relaxed), 0);
}

#[test]
fn failed_sync_poisons_the_log_and_is_never_retried() {
    let (_dir, mut wal, syncs) = wal_failing_on("sync");
    let result = wal.save(None, &[entry(1, 1)], true);
    assert!(matches!(result, Err(WriteError::Sync { .. })));
    assert_poisoned(&mut wal);
    assert_eq!(syncs.load(Ordering::Relaxed), 1);
}

#[test]
fn failure_to_finish_a_segment_poisons_the_log() {
    let (_dir, mut wal, _) = wal_failing_on("sync");
    let result = wal.save(None, &[entry(1, 5000)], false);
    assert!(matches!(result, Err(WriteError::Sync { .. })));
    assert_poisoned(&mut wal);
}

#[test]
fn missing_next_segment_poisons_the_log_and_names_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let mut wal = SMALL.create(&dir.path().join("wal"), Bytes::new()).unwrap();
    // A missing directory simulates a disk without space.
    wal.preparer = SegmentPreparer::start(&(&dir.path().join("missing")).into(), 4096).unwrap();
    let result = wal.save(None, &[entry(1, 5000)], true);
    let Err(WriteError::NextSegment(cause)) = result else {
        panic!("{result:?}");
    };
    assert!(cause.to_string().contains("restart the member"));
    assert_poisoned(&mut wal);
}

#[test]
fn save_syncs_at_most_once_and_an_empty_sync_is_skipped() {
    let (_dir, mut wal, syncs) = wal_failing_on("nothing");
    wal.save(None, &[entry(1, 1), entry(2, 1)], true).unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 1);
    wal.sync().unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 1, "nothing new to sync");
    wal.save(None, &[entry(3, 1)], false).unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 1, "no sync requested");
    wal.sync().unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 2);
}

#[test]
fn rejected_batch_does_not_change_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wal");
    let mut wal = SMALL.create(&path, Bytes::new()).unwrap();
    wal.save(None, &[entry(1, 1)], true).unwrap();
    let result = wal.save(None, &[entry(2, 1), entry(4, 1)], true);
    assert!(matches!(
        result,
        Err(WriteError::Rejected(LogRuleViolation::EntryGap { .. }))
    ));
    let without_members = Snapshot {
        index: 1,
        term: 1,
        conf_state: None,
    };
    assert!(matches!(
        wal.save_snapshot(&without_members),
        Err(WriteError::Rejected(_))
    ));
    wal.save(None, &[entry(2, 1)], true).unwrap();
    drop(wal);
    let (_, recovered) = SMALL.open(&path, SnapshotPoint::default()).unwrap();
    assert_eq!(recovered.entries, [entry(1, 1), entry(2, 1)]);
}
