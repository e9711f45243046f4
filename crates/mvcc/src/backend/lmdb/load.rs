//! Filling a new store with a whole database.
//!
//! Called when data of etcd is taken over and when a leader sends its snapshot. Nobody else
//! sees the store meanwhile and a crash discards it, so commits are not durable one by one:
//! the disk is kept writing in the background, and [`LmdbLoad::finish`] waits for all of it.

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

/// Committed bytes after which the disk is told to begin with them. The system on its own
/// would wait for a tenth of all memory.
const BACKGROUND_SYNC_BYTES: usize = 32 << 20;

/// A store that is being filled.
#[derive(Debug)]
pub struct LmdbLoad {
    directory: PathBuf,
    environment: Environment,
    unsynced_bytes: usize,
    /// Joined before the environment is closed, which it keeps open.
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

    /// Adds entries. Records come in ascending order, those of earlier calls included.
    pub fn add(&mut self, changes: &[Change]) -> Result<(), BackendError> {
        self.environment.commit(changes, Append::Yes)?;
        self.unsynced_bytes += changes.iter().map(Change::queued_bytes).sum::<usize>();
        if self.unsynced_bytes >= BACKGROUND_SYNC_BYTES && self.has_synced() {
            self.wait_for_sync()?;
            self.unsynced_bytes = 0;
            let sync = self.environment.sync_later();
            let thread = thread::Builder::new().name("load-sync".to_owned());
            // Without a thread all is synced at the end.
            self.syncing = thread.spawn(sync).ok();
        }
        Ok(())
    }

    /// Makes all of it durable under the name of the directory. That the name itself lasts
    /// is the caller's part.
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
            // It panicked, and what is on disk is unknown.
            Some(Err(_)) => Err(BackendError::Poisoned),
        }
    }
}

impl Drop for LmdbLoad {
    fn drop(&mut self) {
        // Given up, or finished: then there is nothing to wait for.
        let _ = self.wait_for_sync();
    }
}
