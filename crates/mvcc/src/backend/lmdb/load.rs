//! Fills a new store with a whole database.
//!
//! Used for the import of etcd data and for a snapshot from the leader. No other thread uses the
//! store meanwhile and a crash discards it, so single commits are not durable: a background thread
//! syncs, and [`LmdbLoad::finish`] waits for all of it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use super::{
    LmdbConfig, defragment,
    environment::{Append, Durable, Environment},
};
use crate::backend::{BackendError, Change};

/// Committed bytes after which a background sync starts. By default Linux would wait for a tenth of
/// all memory.
const BACKGROUND_SYNC_BYTES: usize = 32 << 20;

/// A store that is being filled.
#[derive(Debug)]
pub struct LmdbLoad {
    directory: PathBuf,
    environment: Environment,
    unsynced_bytes: usize,
    /// The background sync, which keeps the environment open; joined before it is closed.
    syncing: Option<JoinHandle<Result<(), BackendError>>>,
}

impl LmdbLoad {
    /// Creates the directory, which must not exist.
    pub fn create(directory: &Path) -> Result<Self, BackendError> {
        fs::create_dir(directory).map_err(|source| BackendError::File {
            action: "create the directory",
            path: directory.to_owned(),
            source,
        })?;
        let generation = defragment::newest_generation(directory)?;
        let path = defragment::file_of(directory, generation);
        let config = LmdbConfig::default();
        Ok(Self {
            directory: directory.to_owned(),
            environment: Environment::open(&path, generation, config, Durable::WhenSynced)?,
            unsynced_bytes: 0,
            syncing: None,
        })
    }

    /// Adds entries. Records must ascend over all calls.
    pub fn add(&mut self, changes: &[Change]) -> Result<(), BackendError> {
        self.environment.commit(changes, Append::Yes)?;
        self.unsynced_bytes += changes.iter().map(Change::queued_bytes).sum::<usize>();
        if self.unsynced_bytes >= BACKGROUND_SYNC_BYTES && self.has_synced() {
            self.wait_for_sync()?;
            self.unsynced_bytes = 0;
            let sync = self.environment.sync_later();
            let thread = thread::Builder::new().name("load-sync".to_owned());
            // If no thread can be started, `finish` syncs everything.
            self.syncing = thread.spawn(sync).ok();
        }
        Ok(())
    }

    /// Syncs all data and the directory. The caller syncs the parent directory.
    pub fn finish(mut self) -> Result<(), BackendError> {
        self.wait_for_sync()?;
        self.environment.sync_later()()?;
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|source| BackendError::File {
            action: "sync the directory",
            path: self.directory.clone(),
            source,
        })
    }

    fn has_synced(&self) -> bool {
        self.syncing.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn wait_for_sync(&mut self) -> Result<(), BackendError> {
        match self.syncing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(synced)) => synced,
            // The sync thread panicked; the state on disk is unknown.
            Some(Err(_)) => Err(BackendError::Poisoned),
        }
    }
}

impl Drop for LmdbLoad {
    fn drop(&mut self) {
        // The load was abandoned, or is finished and there is nothing to wait for.
        let _ = self.wait_for_sync();
    }
}
