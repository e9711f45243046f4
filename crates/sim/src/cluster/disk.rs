//! An in-memory disk with simulated power loss.
//!
//! Files have written and synced content; names have a journal. A power loss keeps a part of
//! the unsynced data: nothing, everything, a prefix, or a subset of the sectors. Sectors are
//! atomic, as the log assumes; a file may end anywhere between its old and its new size. Name
//! changes survive in order.
//!
//! A scheduled power loss occurs before or after a chosen call of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use portunus_wal::{Disk, DiskFile};

use crate::random::Random;

const SECTOR_BYTES: usize = 512;

/// The disk of one member, shared by all its handles.
#[derive(Clone, Default)]
pub(super) struct SimDisk {
    shared: Arc<Mutex<DiskState>>,
}

#[derive(Default)]
struct Inode {
    written: Vec<u8>,
    synced: Vec<u8>,
    /// Sectors of `written` that may differ from `synced`.
    dirty_sectors: BTreeSet<usize>,
    lock: Weak<()>,
}

#[derive(Clone)]
enum NameChange {
    Created(PathBuf, usize),
    MadeDir(PathBuf),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
    RemovedDir(PathBuf),
}

#[derive(Clone, Default)]
struct Names {
    files: BTreeMap<PathBuf, usize>,
    dirs: BTreeSet<PathBuf>,
}

#[derive(Default)]
struct DiskState {
    inodes: Vec<Inode>,
    now: Names,
    synced: Names,
    /// Name changes since the last sync.
    journal: Vec<NameChange>,
    power_loss: Option<PowerLoss>,
    is_off: bool,
    /// For a planted bug: syncs have no effect.
    ignores_syncs: bool,
}

/// A scheduled power loss.
#[derive(Clone, Copy)]
struct PowerLoss {
    /// The number of modifying calls before it.
    calls: u64,
    /// The interrupted call still takes effect.
    completes: bool,
}

impl Names {
    fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Created(path, inode) => drop(self.files.insert(path.clone(), *inode)),
            NameChange::MadeDir(path) => drop(self.dirs.insert(path.clone())),
            NameChange::Removed(path) => drop(self.files.remove(path)),
            NameChange::RemovedDir(dir) => {
                self.dirs.retain(|path| !path.starts_with(dir));
                self.files.retain(|path, _| !path.starts_with(dir));
            }
            NameChange::Renamed(from, to) => {
                let moved = |path: &Path| match path.strip_prefix(from) {
                    Ok(rest) if rest.as_os_str().is_empty() => to.clone(),
                    Ok(rest) => to.join(rest),
                    Err(_) => path.to_owned(),
                };
                // Replaces a file with the new name.
                self.files.remove(to);
                let files = std::mem::take(&mut self.files);
                self.files = files
                    .into_iter()
                    .map(|(path, it)| (moved(&path), it))
                    .collect();
                self.dirs = self.dirs.iter().map(|path| moved(path)).collect();
            }
        }
    }
}

impl NameChange {
    /// Returns whether the change is in this directory.
    fn touches(&self, dir: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(dir);
        match self {
            Self::Created(path, _)
            | Self::MadeDir(path)
            | Self::Removed(path)
            | Self::RemovedDir(path) => within(path),
            Self::Renamed(from, to) => within(from) || within(to),
        }
    }
}

impl Inode {
    fn sync(&mut self) {
        self.synced.resize(self.written.len(), 0);
        for sector in std::mem::take(&mut self.dirty_sectors) {
            let start = (sector * SECTOR_BYTES).min(self.written.len());
            let end = (start + SECTOR_BYTES).min(self.written.len());
            self.synced[start..end].copy_from_slice(&self.written[start..end]);
        }
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if self.written.len() < end {
            self.touch(self.written.len(), end);
            self.written.resize(end, 0);
        }
        self.touch(offset, end);
        self.written[offset..end].copy_from_slice(bytes);
    }

    fn touch(&mut self, start: usize, end: usize) {
        if start < end {
            let sectors = start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
            self.dirty_sectors.extend(sectors);
        }
    }

    /// Chooses the content after a power loss.
    fn survive(&mut self, random: &mut Random) {
        if self.dirty_sectors.is_empty() && self.written.len() == self.synced.len() {
            return;
        }
        let (old, new) = (self.synced.len() as u64, self.written.len() as u64);
        let mut dirty: Vec<usize> = std::mem::take(&mut self.dirty_sectors)
            .into_iter()
            .collect();
        let mut file_bytes = match random.below(3) {
            0 => old,
            1 => new,
            _ => random.between(old.min(new), old.max(new)),
        };
        match random.below(4) {
            0 => {
                dirty.clear();
                file_bytes = old;
            }
            1 => file_bytes = new,
            2 => {
                let kept = random.below(dirty.len() as u64 + 1);
                dirty.truncate(usize::try_from(kept).unwrap_or(0));
            }
            _ => dirty.retain(|_| random.below(2) == 0),
        }
        let file_bytes = usize::try_from(file_bytes).unwrap_or(0);
        self.synced.resize(file_bytes, 0);
        for sector in dirty {
            let limit = self.synced.len().min(self.written.len());
            let start = (sector * SECTOR_BYTES).min(limit);
            let end = (start + SECTOR_BYTES).min(limit);
            self.synced[start..end].copy_from_slice(&self.written[start..end]);
        }
        self.written.clone_from(&self.synced);
    }
}

impl SimDisk {
    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a power loss after this many modifying calls.
    pub(super) fn schedule_power_loss(&self, calls: u64, completes: bool) {
        self.lock().power_loss = Some(PowerLoss { calls, completes });
    }

    pub(super) fn cancel_power_loss(&self) {
        self.lock().power_loss = None;
    }

    /// Returns whether the scheduled power loss has occurred.
    pub(super) fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Makes syncs return success without effect.
    pub(super) fn ignore_syncs(&self) {
        self.lock().ignores_syncs = true;
    }

    /// Simulates a power loss and the return of power.
    pub(super) fn lose_power(&self, random: &mut Random) {
        let mut state = self.lock();
        let state = &mut *state;
        for inode in &mut state.inodes {
            inode.survive(random);
            inode.lock = Weak::new();
        }
        let kept = random.below(state.journal.len() as u64 + 1);
        let journal = std::mem::take(&mut state.journal);
        for change in journal.iter().take(usize::try_from(kept).unwrap_or(0)) {
            state.synced.apply(change);
        }
        state.now = state.synced.clone();
        // Files without a name are cleared; their few slots stay.
        let named: BTreeSet<usize> = state.now.files.values().copied().collect();
        for (number, inode) in state.inodes.iter_mut().enumerate() {
            if !named.contains(&number) {
                *inode = Inode::default();
            }
        }
        state.power_loss = None;
        state.is_off = false;
    }
}

impl DiskState {
    fn check_power(&self) -> io::Result<()> {
        if self.is_off {
            return Err(io::Error::other("the power is off"));
        }
        Ok(())
    }

    /// Makes a change unless the power is lost.
    fn change<R>(&mut self, act: impl FnOnce(&mut Self) -> io::Result<R>) -> io::Result<R> {
        self.check_power()?;
        let Some(power_loss) = &mut self.power_loss else {
            return act(self);
        };
        if power_loss.calls > 0 {
            power_loss.calls -= 1;
            return act(self);
        }
        self.is_off = true;
        if power_loss.completes {
            act(self)?;
        }
        Err(io::Error::other("the power was lost"))
    }

    fn change_names(&mut self, change: NameChange) {
        self.now.apply(&change);
        self.journal.push(change);
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let found = self.now.files.get(path).copied();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
    lock: Option<Arc<()>>,
}

impl SimFile {
    fn with_inode<R>(&self, act: impl FnOnce(&mut Inode) -> R) -> io::Result<R> {
        let mut state = self.disk.lock();
        state.check_power()?;
        let inode = state.inodes.get_mut(self.inode);
        inode.map(act).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&self, act: impl FnOnce(&mut Inode)) -> io::Result<()> {
        let number = self.inode;
        self.disk.lock().change(|state| {
            let inode = state.inodes.get_mut(number);
            inode.map(act).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let state = self.lock();
        state.check_power()?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode: state.find(path)?,
            lock: None,
        }))
    }

    fn open_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        state.check_power()?;
        let inode = state.find(path)?;
        let lock = Arc::new(());
        match state.inodes.get_mut(inode) {
            Some(found) if found.lock.strong_count() == 0 => found.lock = Arc::downgrade(&lock),
            _ => return Err(io::ErrorKind::WouldBlock.into()),
        }
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode,
            lock: Some(lock),
        }))
    }

    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if self.lock().find(path).is_ok() {
            let file = self.open_locked(path)?;
            file.set_len(0)?;
            return Ok(file);
        }
        let lock = Arc::new(());
        let inode = self.lock().change(|state| {
            let inode = state.inodes.len();
            state.inodes.push(Inode {
                lock: Arc::downgrade(&lock),
                ..Inode::default()
            });
            state.change_names(NameChange::Created(path.to_owned(), inode));
            Ok(inode)
        })?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode,
            lock: Some(lock),
        }))
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.lock().change(|state| {
            state.change_names(NameChange::MadeDir(dir.to_owned()));
            Ok(())
        })
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.lock().change(|state| {
            if state.now.dirs.contains(dir) {
                state.change_names(NameChange::RemovedDir(dir.to_owned()));
            }
            Ok(())
        })
    }

    fn names_in(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let state = self.lock();
        state.check_power()?;
        if !state.now.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = state.now.files.keys();
        let within = files.filter(|path| path.parent() == Some(dir));
        let names = within.filter_map(|path| path.file_name());
        Ok(names.map(ToOwned::to_owned).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lock().change(|state| {
            state.change_names(NameChange::Renamed(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.lock().change(|state| {
            state.find(path)?;
            state.change_names(NameChange::Removed(path.to_owned()));
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.lock().change(|state| {
            // The journal is written in order, including earlier changes of other directories.
            let last = state.journal.iter().rposition(|it| it.touches(dir));
            let count = last.map_or(0, |last| last + 1);
            for change in state.journal.drain(..count) {
                state.synced.apply(&change);
            }
            Ok(())
        })
    }

    fn prepares_ahead(&self) -> bool {
        false
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with_inode(|inode| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let Some(rest) = inode.written.get(start..) else {
                return 0;
            };
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.change(|inode| inode.write(bytes, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.disk.lock().ignores_syncs {
            return Ok(());
        }
        self.change(Inode::sync)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        self.change(|inode| {
            inode.touch(inode.written.len(), bytes);
            inode.written.resize(bytes, 0);
        })
    }

    fn file_bytes(&self) -> io::Result<u64> {
        self.with_inode(|inode| inode.written.len() as u64)
    }

    fn try_clone(&self) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SimFile {
            disk: self.disk.clone(),
            inode: self.inode,
            lock: self.lock.clone(),
        }))
    }
}
