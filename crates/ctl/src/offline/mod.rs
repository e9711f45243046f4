//! Work on the files of stopped members, as etcdutl does it: no server answers here.
//!
//! A data directory of Portunus is locked by its lock file, a database file of etcd by bbolt's own
//! lock. Both are waited for as long as `--timeout` says.

mod defragment;
mod hash;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portunus_bolt::{OpenError, OptionsError, ReadError, WriteError};
use portunus_datadir::import::ImportError;
use portunus_datadir::{DataDir, DataDirError};
use portunus_mvcc::backend::BackendError;

pub use defragment::defragment;
pub use hash::hash_kv;

/// The time between two attempts to lock a file.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Why a file of a stopped member could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum OfflineError {
    /// The file does not exist or may not be read; with Go's text.
    #[error("stat {}: {problem}", path.display())]
    Stat { path: PathBuf, problem: String },
    /// Another process uses the file.
    #[error("{} is in use by another process: stop the member, or wait longer with --timeout", path.display())]
    InUse { path: PathBuf },
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The file is no database.
    #[error("{} cannot be opened as a database", path.display())]
    Open { path: PathBuf, source: OpenError },
    /// The database is damaged.
    #[error("{} is damaged: restore it from a snapshot", path.display())]
    Read { path: PathBuf, source: ReadError },
    /// The database has pages of an unknown size.
    #[error("{} cannot be written with its page size", path.display())]
    Pages { path: PathBuf, source: OptionsError },
    /// The new file could not be written.
    #[error("{} could not be written", path.display())]
    Write { path: PathBuf, source: WriteError },
    /// The new file could not be made durable or renamed.
    #[error("{} could not be written", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The database cannot be read as the store of a member.
    #[error("{} cannot be read", path.display())]
    Import {
        path: PathBuf,
        source: Box<ImportError>,
    },
    /// The backend of Portunus failed.
    #[error("the backend cannot be used")]
    Backend(#[from] BackendError),
    /// The store could not be opened.
    #[error("the keys cannot be read")]
    Store(#[from] portunus_mvcc::OpenError),
    /// The hash could not be computed.
    #[error(transparent)]
    Hash(#[from] portunus_mvcc::ReadError),
}

/// Returns whether the path exists; an error has Go's text.
pub fn require_path(path: &Path) -> Result<(), OfflineError> {
    match path.metadata() {
        Ok(_) => Ok(()),
        Err(error) => Err(OfflineError::Stat {
            path: path.to_owned(),
            problem: go_text(&error),
        }),
    }
}

/// Returns an error of the file system as Go prints it.
pub fn go_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Opens and locks the data directory of a stopped member of Portunus; waits for the lock, without
/// limit if `timeout` is zero.
pub fn open_data_dir(path: &Path, timeout: Duration) -> Result<DataDir, DataDirError> {
    let started = Instant::now();
    loop {
        match DataDir::open_of_member(path) {
            Err(DataDirError::InUse { .. }) if may_wait(started, timeout) => {
                std::thread::sleep(LOCK_RETRY_INTERVAL);
            }
            opened => return opened,
        }
    }
}

/// Keeps etcd from opening one of its database files, and waits as [`open_data_dir`] does. Readers of
/// the file share the lock.
fn lock_database(path: &Path, timeout: Duration) -> Result<File, OfflineError> {
    let failed = |source| OfflineError::File {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let started = Instant::now();
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if may_wait(started, timeout) => {
                std::thread::sleep(LOCK_RETRY_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(OfflineError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
}

fn may_wait(started: Instant, timeout: Duration) -> bool {
    timeout.is_zero() || started.elapsed() < timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_has_the_text_of_go() {
        let error = require_path(Path::new("/nowhere/db")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "stat /nowhere/db: no such file or directory"
        );
    }

    #[test]
    fn locked_database_is_refused_after_the_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        std::fs::write(&path, b"").unwrap();
        let first = File::open(&path).unwrap();
        first.lock().unwrap();
        let refused = lock_database(&path, Duration::from_millis(60)).unwrap_err();
        assert!(refused.to_string().contains("--timeout"), "{refused}");
        drop(first);
        lock_database(&path, Duration::from_millis(1)).unwrap();
    }
}
