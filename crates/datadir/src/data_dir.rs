//! A data directory that this process owns.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::import::ImportError;
use crate::snapshots::{FIRST_BACKEND, INSTALLED};

const LOCK_FILE: &str = "portunus.lock";
/// A data directory, locked by this process.
#[derive(Debug)]
pub struct DataDir {
    pub(crate) path: PathBuf,
    /// What opening it created.
    created: Created,
    /// Released when the process ends, however it ends.
    _lock: File,
}

/// The part of a data directory that opening it created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Created {
    Nothing,
    /// The contents, such as in a volume that was mounted empty.
    Contents,
    /// The directory itself, too.
    All,
}

/// A data directory that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DataDirError {
    /// Another process holds the lock.
    #[error("{} is in use by another process: stop it, or choose another --data-dir", path.display())]
    InUse { path: PathBuf },
    /// Both etcd and Portunus have data here, and etcd's is newer.
    #[error("{} was used by etcd after Portunus had taken it over: set member/portunus aside to take over again what etcd has (index {etcd}), or member/snap to go on with what Portunus has (index {own})", path.display())]
    TwoOwners { path: PathBuf, etcd: u64, own: u64 },
    /// etcd stopped before it had installed a snapshot of its leader.
    #[error("{} was received by etcd but not installed: start etcd here once more, stop it, then start again", path.display())]
    SnapshotPending { path: PathBuf },
    /// etcd's data cannot be copied.
    #[error("the data of etcd in {} cannot be taken over", path.display())]
    Import {
        path: PathBuf,
        source: Box<ImportError>,
    },
    /// The path is a file.
    #[error("{} is no directory: choose another --data-dir", path.display())]
    NotADirectory { path: PathBuf },
    /// The directory has no data of a member.
    #[error("{} holds no data of a member: check --data-dir", path.display())]
    NoMember { path: PathBuf },
    /// The directory has data of etcd, for etcd's own tools.
    #[error("{} holds data of etcd that Portunus has not taken over: use etcdutl, or start Portunus here once", path.display())]
    NotTakenOver { path: PathBuf },
    /// There is no space left on the device.
    #[error("there is no space left at {}: free some, then start again", path.display())]
    Full { path: PathBuf, source: io::Error },
    /// The file system returned another error.
    #[error("{} cannot be used: check that it exists and may be written", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl DataDir {
    /// Opens and locks a data directory; creates it if it does not exist.
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
        let member = path.join("member");
        let created = match (path.is_dir(), member.is_dir()) {
            (false, _) => Created::All,
            (true, false) => Created::Contents,
            (true, true) => Created::Nothing,
        };
        create_private(path).map_err(refused)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            // Who can open the file can hold its lock, and the server could not start.
            .mode(0o600)
            .open(path.join(LOCK_FILE))
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
            created,
            _lock: lock,
        })
    }

    /// Removes everything that this start created, for a member that was refused before its
    /// raft ran; `new_wal_dir` is the directory of its log if this start created that, too. A
    /// directory that a member used before stays unchanged.
    pub fn remove_if_created(self, new_wal_dir: Option<&Path>) {
        let removed = match self.created {
            Created::Nothing => return,
            Created::Contents => {
                let lock = fs::remove_file(self.path.join(LOCK_FILE));
                fs::remove_dir_all(self.member()).and(lock)
            }
            Created::All => fs::remove_dir_all(&self.path),
        };
        let log_removed = match new_wal_dir {
            Some(wal_dir) if wal_dir.exists() => fs::remove_dir_all(wal_dir),
            _ => Ok(()),
        };
        if let Err(error) = removed.and(log_removed) {
            tracing::warn!(path = %self.path.display(), %error, "removing the new data directory failed; remove it by hand");
        }
    }

    /// Opens and locks a data directory that a member of Portunus has used.
    pub fn open_of_member(path: &Path) -> Result<DataDir, DataDirError> {
        let path = path.to_owned();
        if !path.join("member").is_dir() {
            return Err(DataDirError::NoMember { path });
        }
        let is_of_etcd = path.join("member").join("snap").join("db").exists();
        if is_of_etcd {
            return Err(DataDirError::NotTakenOver { path });
        }
        let data_dir = DataDir::open(&path)?;
        match data_dir.backend().exists() {
            true => Ok(data_dir),
            false => Err(DataDirError::NoMember { path }),
        }
    }

    /// Returns the path of the backend: the newest installed one, or the first.
    pub fn backend(&self) -> PathBuf {
        let installed = self.numbered(INSTALLED).unwrap_or_default();
        match installed.into_iter().max() {
            Some((_, path)) => path,
            None => self.member().join(FIRST_BACKEND),
        }
    }

    /// Returns the directory with everything but the lock.
    pub(crate) fn member(&self) -> PathBuf {
        self.path.join("member")
    }
}

/// Creates a directory that only its owner may access, as etcd requires.
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
    fn refused_first_start_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.etcd");
        DataDir::open(&path).unwrap().remove_if_created(None);
        assert!(!path.exists());

        let mounted = dir.path().join("mounted");
        fs::create_dir(&mounted).unwrap();
        DataDir::open(&mounted).unwrap().remove_if_created(None);
        assert_eq!(fs::read_dir(&mounted).unwrap().count(), 0);

        let used = dir.path().join("used");
        drop(DataDir::open(&used).unwrap());
        DataDir::open(&used).unwrap().remove_if_created(None);
        assert!(used.join("member").is_dir());

        let log = dir.path().join("log");
        fs::create_dir(&log).unwrap();
        DataDir::open(&used).unwrap().remove_if_created(Some(&log));
        assert!(log.is_dir());
        DataDir::open(&path).unwrap().remove_if_created(Some(&log));
        assert!(!path.exists() && !log.exists());
    }

    #[test]
    fn second_lock_of_a_data_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.etcd");
        let first = DataDir::open(&path).unwrap();
        assert!(matches!(
            DataDir::open(&path),
            Err(DataDirError::InUse { .. })
        ));
        drop(first);
        DataDir::open(&path).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(matches!(
            DataDir::open(&file),
            Err(DataDirError::NotADirectory { .. })
        ));
    }
}
