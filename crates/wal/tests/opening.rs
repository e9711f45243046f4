//! Reads and syncs of opening a log.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use portunus_wal::{Disk, DiskFile, LogDir, OpenError, StdDisk};
use support::{OPTIONS, START, Scratch, entry, payload};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    Read(PathBuf),
    Sync(PathBuf),
}

/// Records the reads and syncs of the real disk.
#[derive(Default)]
struct Observed {
    calls: Mutex<Vec<Call>>,
    fails_to_sync: AtomicBool,
}

impl Observed {
    fn sync(&self, path: &Path) -> io::Result<()> {
        if self.fails_to_sync.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected"));
        }
        self.calls.lock().unwrap().push(Call::Sync(path.to_owned()));
        Ok(())
    }
}

#[derive(Clone)]
struct ObservedDisk(Arc<Observed>);

struct ObservedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    observed: Arc<Observed>,
}

impl ObservedDisk {
    fn wrap(
        &self,
        path: &Path,
        file: io::Result<Box<dyn DiskFile>>,
    ) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(ObservedFile {
            file: file?,
            path: path.to_owned(),
            observed: Arc::clone(&self.0),
        }))
    }
}

impl Disk for ObservedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.wrap(path, StdDisk.open(path))
    }

    fn open_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.wrap(path, StdDisk.open_locked(path))
    }

    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        StdDisk.create_locked(path)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        StdDisk.create_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        StdDisk.remove_dir(dir)
    }

    fn names_in(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        StdDisk.names_in(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        StdDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        StdDisk.remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync(dir)
    }

    fn prepares_ahead(&self) -> bool {
        false
    }
}

impl DiskFile for ObservedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut calls = self.observed.calls.lock().unwrap();
        calls.push(Call::Read(self.path.clone()));
        self.file.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.observed.sync(&self.path)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.observed.sync(&self.path)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn file_bytes(&self) -> io::Result<u64> {
        self.file.file_bytes()
    }

    fn try_clone(&self) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(ObservedFile {
            file: self.file.try_clone()?,
            path: self.path.clone(),
            observed: Arc::clone(&self.observed),
        }))
    }
}

/// A log whose writer was killed between its write and its sync.
fn killed_before_its_sync() -> Scratch {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    wal.save(None, &[entry(1, 1, payload(1, 100))], false)
        .unwrap();
    scratch
}

/// Raft treats recovered entries as persisted and may acknowledge them, so they must not be in the
/// page cache only.
#[test]
fn open_syncs_the_tail_and_its_name_after_reading_it() {
    let scratch = killed_before_its_sync();
    let observed = Arc::new(Observed::default());
    let dir = LogDir::on(Arc::new(ObservedDisk(Arc::clone(&observed))), &scratch.dir);
    let (_wal, recovered) = OPTIONS.open(&dir, START).unwrap();
    assert_eq!(recovered.entries.len(), 1);
    let (tail, _) = scratch.tail();
    let calls = observed.calls.lock().unwrap();
    let last_read = calls
        .iter()
        .rposition(|call| *call == Call::Read(tail.clone()))
        .unwrap();
    let parent = scratch.dir.parent().unwrap().to_owned();
    for synced in [tail, scratch.dir.clone(), parent] {
        let sync = Call::Sync(synced);
        assert!(calls[last_read..].contains(&sync), "{sync:?}: {calls:?}");
    }
}

#[test]
fn open_fails_if_the_recovered_tail_cannot_be_synced() {
    let scratch = killed_before_its_sync();
    let observed = Arc::new(Observed::default());
    observed.fails_to_sync.store(true, Ordering::Relaxed);
    let dir = LogDir::on(Arc::new(ObservedDisk(observed)), &scratch.dir);
    let opened = OPTIONS.open(&dir, START);
    assert!(matches!(opened.err(), Some(OpenError::Io { .. })));
}
