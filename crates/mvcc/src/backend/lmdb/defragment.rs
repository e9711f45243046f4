//! Defragmentation: writes a copy without free pages and swaps it with the file in use.
//!
//! ```text
//!   remember commits ─▶ copy compacted ─▶ repeat them on the copy ─▶ hold commits,
//!   repeat the rest, rename, sync the directory ─▶ swap ─▶ unlink the old file
//! ```
//!
//! Until the rename the old file is the store; after it the new one is, and
//! holds all commits. Snapshots of the old file stay valid until they are
//! dropped.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use super::{
    Lmdb,
    environment::{Append, Durable, Environment},
};
use crate::backend::{BackendError, Change};

const FILE_PREFIX: &str = "store-";
const FILE_SUFFIX: &str = ".lmdb";
const UNFINISHED_SUFFIX: &str = ".unfinished";

/// Commits wait for the last repetition once at most this many changes are left.
const HELD_CHANGES_MAX: usize = 1000;

/// Returns the path of the store file of a generation.
pub(super) fn file_of(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("{FILE_PREFIX}{generation:016}{FILE_SUFFIX}"))
}

/// Returns the newest complete generation. Removes files of interrupted runs and older generations.
pub(super) fn newest_generation(directory: &Path) -> Result<u64, BackendError> {
    let mut generations = Vec::new();
    let failed = |action| file_failed(action, directory);
    for entry in fs::read_dir(directory).map_err(failed("list"))? {
        let name = entry.map_err(failed("list"))?.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with(FILE_PREFIX) && name.contains(UNFINISHED_SUFFIX) {
            remove(&directory.join(name))?;
        } else if let Some(generation) = name
            .strip_prefix(FILE_PREFIX)
            .and_then(|name| name.strip_suffix(FILE_SUFFIX))
            .and_then(|digits| digits.parse::<u64>().ok())
        {
            generations.push(generation);
        }
    }
    let newest = generations.iter().copied().max().unwrap_or(1);
    for older in generations.into_iter().filter(|&g| g < newest) {
        remove_with_lock_file(&file_of(directory, older))?;
    }
    Ok(newest)
}

impl Lmdb {
    pub(super) fn copy_and_swap(&self) -> Result<(), BackendError> {
        let _only_one = self
            .defragmenting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let old = self.current.load_full();
        let generation = old.generation + 1;
        let finished = file_of(&self.directory, generation);
        let mut unfinished = finished.clone().into_os_string();
        unfinished.push(UNFINISHED_SUFFIX);
        let unfinished = PathBuf::from(unfinished);

        // Changes committed from here on are repeated on the copy. The copy may
        // hold some of them already, so repeating overwrites instead of
        // appending.
        self.writer().since_copy = Some(Vec::new());
        let swapped = self
            .copy_and_catch_up(&old, &unfinished, generation)
            .and_then(|copy| self.swap(copy, &unfinished, &finished));
        self.writer().since_copy = None;
        if swapped.is_err() {
            // The old file is still the store; the next start removes what is left here.
            let _ = remove_with_lock_file(&unfinished);
        }
        swapped?;
        remove_with_lock_file(old.path())
    }

    fn copy_and_catch_up(
        &self,
        old: &Arc<Environment>,
        unfinished: &Path,
        generation: u64,
    ) -> Result<Environment, BackendError> {
        remove_with_lock_file(unfinished)?;
        Environment::copy_compacted(old, unfinished)?;
        let copy = Environment::open(unfinished, generation, self.config, Durable::AtCommit)?;
        loop {
            let changes = self.take_since_copy();
            let few_left = changes.len() <= HELD_CHANGES_MAX;
            copy.commit(&changes, Append::No)?;
            if few_left {
                return Ok(copy);
            }
        }
    }

    fn swap(
        &self,
        copy: Environment,
        unfinished: &Path,
        finished: &Path,
    ) -> Result<(), BackendError> {
        let mut writer = self.writer();
        if writer.poisoned {
            return Err(BackendError::Poisoned);
        }
        let rest = writer.since_copy.replace(Vec::new()).unwrap_or_default();
        let sizes = copy.commit(&rest, Append::No)?;
        fs::rename(unfinished, finished).map_err(file_failed("rename", unfinished))?;
        // If the sync fails, it is unknown which file a restart would find.
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        writer.poisoned = synced.is_err();
        synced.map_err(file_failed("sync the directory", &self.directory))?;
        self.current.store(Arc::new(copy.renamed_to(finished)));
        self.publish_sizes(sizes);
        // LMDB holds the lock file open, so its file name is no longer needed.
        remove(&lock_file_of(unfinished))
    }

    fn take_since_copy(&self) -> Vec<Change> {
        self.writer()
            .since_copy
            .replace(Vec::new())
            .unwrap_or_default()
    }
}

fn remove_with_lock_file(path: &Path) -> Result<(), BackendError> {
    remove(path)?;
    remove(&lock_file_of(path))
}

fn lock_file_of(path: &Path) -> PathBuf {
    let mut lock_file = path.to_owned().into_os_string();
    lock_file.push("-lock");
    PathBuf::from(lock_file)
}

fn remove(path: &Path) -> Result<(), BackendError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(file_failed("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn file_failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> BackendError + use<> {
    let path = path.to_owned();
    move |source| BackendError::File {
        action,
        path: path.clone(),
        source,
    }
}
