//! The backend on disk: LMDB, one database per bucket.
//!
//! Records of the `key` bucket arrive in revision order and are appended. Every
//! commit is synced by LMDB itself; `NOSYNC` and `WRITEMAP` stay off, because
//! the first loses the order of writes and the second lets a stray pointer
//! reach the file. Only [`LmdbLoad`] uses `NOSYNC`, for a store that is
//! discarded unless it is complete.
//!
//! Files are numbered (`store-0000000000000001.lmdb`); the highest complete one is used.
//! Defragmenting writes the next number while the current file stays in use, then swaps.

mod defragment;
mod environment;
mod gate;
mod load;
mod long_keys;
mod no_space;
mod passed;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;

use super::{Backend, BackendError, Change, Sizes, Snapshot};
use environment::{Append, Durable, Environment};
pub use load::LmdbLoad;

/// Settings of an LMDB environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LmdbConfig {
    /// Initially reserved address space. Costs no memory and no disk; it
    /// doubles when the data reaches it, which waits for open snapshots to end.
    pub map_bytes: usize,
    /// Snapshots that may be open at once; more are refused. Applying needs one at times, so the
    /// server must limit the snapshots of clients far below this.
    pub snapshots_max: u32,
}

impl Default for LmdbConfig {
    fn default() -> Self {
        Self {
            map_bytes: 64 << 30,
            snapshots_max: 8192,
        }
    }
}

/// Buckets in an LMDB file.
#[derive(Debug)]
pub struct Lmdb {
    directory: PathBuf,
    config: LmdbConfig,
    /// Replaced by defragmenting; snapshots keep the environment they were taken from.
    current: ArcSwap<Environment>,
    /// Held during a commit, and for the swap that ends defragmenting.
    writer: Mutex<Writer>,
    /// Held while defragmenting, so that only one runs.
    defragmenting: Mutex<()>,
    total_bytes: AtomicU64,
    in_use_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Writer {
    poisoned: bool,
    /// While defragmenting: the changes committed since the copy began.
    since_copy: Option<Vec<Change>>,
}

impl Lmdb {
    /// Opens the store of a directory, creating both if they do not exist.
    pub fn open(directory: &Path, config: LmdbConfig) -> Result<Self, BackendError> {
        fs::create_dir_all(directory).map_err(|source| BackendError::File {
            action: "create the directory",
            path: directory.to_owned(),
            source,
        })?;
        let generation = defragment::newest_generation(directory)?;
        let environment = Environment::open(
            &defragment::file_of(directory, generation),
            generation,
            config,
            Durable::AtCommit,
        )?;
        let lmdb = Self {
            directory: directory.to_owned(),
            config,
            current: ArcSwap::from_pointee(environment),
            writer: Mutex::default(),
            defragmenting: Mutex::default(),
            total_bytes: AtomicU64::new(0),
            in_use_bytes: AtomicU64::new(0),
        };
        lmdb.publish_sizes(lmdb.current.load().sizes()?);
        Ok(lmdb)
    }

    fn publish_sizes(&self, sizes: Sizes) {
        self.total_bytes.store(sizes.total_bytes, Ordering::Relaxed);
        self.in_use_bytes
            .store(sizes.in_use_bytes, Ordering::Relaxed);
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // After a panic under the lock LMDB has aborted the transaction, so a
        // poisoned lock is usable.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Lmdb {
    fn commit(&self, changes: &[Change]) -> Result<(), BackendError> {
        let mut writer = self.writer();
        if writer.poisoned {
            return Err(BackendError::Poisoned);
        }
        let committed = self.current.load().commit(changes, Append::Yes);
        writer.poisoned = committed.is_err();
        self.publish_sizes(committed?);
        if let Some(since_copy) = &mut writer.since_copy {
            since_copy.extend_from_slice(changes);
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, BackendError> {
        Ok(Box::new(Environment::snapshot(&self.current.load_full())?))
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            in_use_bytes: self.in_use_bytes.load(Ordering::Relaxed),
        }
    }

    fn defragment(&self) -> Result<(), BackendError> {
        self.copy_and_swap()
    }
}
