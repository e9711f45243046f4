//! The data directory: who owns it, and what is in it.
//!
//! ```text
//! DATA-DIR/
//!   portunus.lock        held while a process runs here
//!   member/
//!     wal/               the write-ahead log, in etcd's format
//!     portunus/          the backend (LMDB)
//!     snap/              only etcd has this
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A data directory that this process owns.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Released when the process ends, however it ends.
    _lock: File,
}

/// A data directory that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DataDirError {
    /// Another process is there.
    #[error("{} is in use by another process: stop it, or choose another --data-dir", path.display())]
    InUse { path: PathBuf },
    /// Data of Go etcd.
    #[error("{} holds data of etcd, which this version cannot take over: use etcdutl snapshot and portctl snapshot restore, or choose another --data-dir", path.display())]
    Foreign { path: PathBuf },
    /// A file where a directory should be.
    #[error("{} is no directory: choose another --data-dir", path.display())]
    NotADirectory { path: PathBuf },
    /// No space.
    #[error("there is no space left at {}: free some, then start again", path.display())]
    Full { path: PathBuf, source: io::Error },
    /// The system refused.
    #[error("{} cannot be used: check that it exists and may be written", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl DataDir {
    /// Creates it if need be, and locks it.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let refused = |source: io::Error| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::StorageFull => DataDirError::Full { path, source },
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                    DataDirError::NotADirectory { path }
                }
                _ => DataDirError::Io { path, source },
            }
        };
        // Looked at before anything is written: somebody else's data stays as it is.
        let member = path.join("member");
        if member.join("snap").join("db").exists() {
            return Err(DataDirError::Foreign {
                path: path.to_owned(),
            });
        }
        create_private(path).map_err(refused)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("portunus.lock"))
            .map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(refused(source)),
        }
        create_private(&member).map_err(refused)?;
        Ok(DataDir {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Where the backend lives.
    pub fn backend(&self) -> PathBuf {
        self.path.join("member").join("portunus")
    }
}

/// Only its owner may look inside, as etcd insists.
fn create_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_and_no_foreign_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.etcd");
        let first = DataDir::open(&path).unwrap();
        assert!(matches!(
            DataDir::open(&path),
            Err(DataDirError::InUse { .. })
        ));
        drop(first);
        DataDir::open(&path).unwrap();
        fs::create_dir_all(path.join("member/snap")).unwrap();
        fs::write(path.join("member/snap/db"), b"").unwrap();
        assert!(matches!(
            DataDir::open(&path),
            Err(DataDirError::Foreign { .. })
        ));
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(matches!(
            DataDir::open(&file),
            Err(DataDirError::NotADirectory { .. })
        ));
    }
}
