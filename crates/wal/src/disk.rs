//! The file system operations that a log uses.
//!
//! A server uses [`StdDisk`]. The simulator uses a disk that simulates power loss; tests use disks
//! that fail. All file access of the log goes through [`Disk`], so that every crash can be
//! simulated.
//!
//! A disk never decides what is written or when, and never retries.

use std::{
    ffi::OsString,
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::lock;

/// The file system operations that a log uses.
pub trait Disk: Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The error of the file system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing, and locks it.
    ///
    /// # Errors
    /// `WouldBlock` if another process holds the lock.
    fn open_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a file and locks it. An existing file of the same name is truncated, but only after
    /// the lock was taken.
    ///
    /// # Errors
    /// `WouldBlock` if another process holds the lock.
    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a directory and its missing parents.
    ///
    /// # Errors
    /// The error of the file system.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes a directory and its content, if it exists.
    ///
    /// # Errors
    /// The error of the file system.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, in any order.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    fn names_in(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Renames a file or a directory.
    ///
    /// # Errors
    /// The error of the file system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The error of the file system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The state on disk is unknown then.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Whether a thread prepares the next segment while the current one fills. A disk that needs a
    /// deterministic order of calls returns false.
    fn prepares_ahead(&self) -> bool {
        true
    }
}

/// An open file. Its lock, if any, is released with the last clone.
pub trait DiskFile: Send {
    /// Reads some bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// The error of the file system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes; the file grows if needed.
    ///
    /// # Errors
    /// The state on disk is unknown then.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes content durable, and the size if reads need it.
    ///
    /// # Errors
    /// The state on disk is unknown then.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes content and all metadata durable.
    ///
    /// # Errors
    /// The state on disk is unknown then.
    fn sync_all(&self) -> io::Result<()>;

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// The state on disk is unknown then.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Size of the file.
    ///
    /// # Errors
    /// The error of the file system.
    fn file_bytes(&self) -> io::Result<u64>;

    /// Returns another handle of the open file.
    ///
    /// # Errors
    /// The error of the system.
    fn try_clone(&self) -> io::Result<Box<dyn DiskFile>>;
}

/// The directory of a log and its disk. A path alone converts to a directory on [`StdDisk`].
#[derive(Clone)]
pub struct LogDir {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
}

impl LogDir {
    /// A directory on a disk.
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>, path: &Path) -> Self {
        Self {
            disk,
            path: path.to_owned(),
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl From<&Path> for LogDir {
    fn from(path: &Path) -> Self {
        Self::on(Arc::new(StdDisk), path)
    }
}

impl From<&PathBuf> for LogDir {
    fn from(path: &PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<&LogDir> for LogDir {
    fn from(dir: &LogDir) -> Self {
        dir.clone()
    }
}

impl fmt::Debug for LogDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct StdDisk;

/// Readable by the owner only, like etcd's.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

impl Disk for StdDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn open_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        lock::try_lock(&file)?;
        Ok(Box::new(file))
    }

    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        lock::try_lock(&file)?;
        file.set_len(0)?;
        Ok(Box::new(file))
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        Ok(())
    }

    fn names_in(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?
            .map(|file| Ok(file?.file_name()))
            .collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn file_bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn try_clone(&self) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::try_clone(self)?))
    }
}
