//! What the log does when the disk fails.

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
        Err(io::Error::other("nobody reads it"))
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

/// Every call that could write is refused, for good.
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
fn a_failed_write_closes_the_log_without_a_sync() {
    let (_dir, mut wal, syncs) = wal_failing_on("write");
    let result = wal.save(None, &[entry(1, 1)], true);
    assert!(matches!(result, Err(WriteError::Write { .. })));
    assert_poisoned(&mut wal);
    assert_eq!(syncs.load(Ordering::Relaxed), 0);
}

#[test]
fn a_failed_sync_closes_the_log_and_is_never_repeated() {
    let (_dir, mut wal, syncs) = wal_failing_on("sync");
    let result = wal.save(None, &[entry(1, 1)], true);
    assert!(matches!(result, Err(WriteError::Sync { .. })));
    assert_poisoned(&mut wal);
    assert_eq!(syncs.load(Ordering::Relaxed), 1);
}

#[test]
fn a_segment_that_cannot_be_finished_closes_the_log() {
    let (_dir, mut wal, _) = wal_failing_on("sync");
    let result = wal.save(None, &[entry(1, 5000)], false);
    assert!(matches!(result, Err(WriteError::Sync { .. })));
    assert_poisoned(&mut wal);
}

#[test]
fn without_a_next_segment_the_log_closes_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut wal = SMALL.create(&dir.path().join("wal"), Bytes::new()).unwrap();
    // A directory that is not there stands in for a disk without space.
    wal.preparer = SegmentPreparer::start(&(&dir.path().join("missing")).into(), 4096).unwrap();
    let result = wal.save(None, &[entry(1, 5000)], true);
    let Err(WriteError::NextSegment(cause)) = result else {
        panic!("{result:?}");
    };
    assert!(cause.to_string().contains("restart the member"));
    assert_poisoned(&mut wal);
}

#[test]
fn a_save_costs_one_sync_at_most_and_a_sync_of_nothing_none() {
    let (_dir, mut wal, syncs) = wal_failing_on("nothing");
    wal.save(None, &[entry(1, 1), entry(2, 1)], true).unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 1);
    wal.sync().unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 1, "nothing new to sync");
    wal.save(None, &[entry(3, 1)], false).unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 1, "not asked to");
    wal.sync().unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed), 2);
}

#[test]
fn a_rejected_batch_leaves_the_log_as_it_was() {
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
