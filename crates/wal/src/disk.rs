//! What a log needs of a file system, and nothing else.
//!
//! A log lives on [`StdDisk`]. A simulator gives it another one, which loses power whenever
//! it likes; tests give it one that fails. Who writes, reads and opens goes through here, so
//! that every crash the real disk can have can be tried.
//!
//! It never decides what is written or when, and never retries.

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

/// A file system, as far as a log uses it.
pub trait Disk: Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// What the file system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing, and locks it.
    ///
    /// # Errors
    /// `WouldBlock` if somebody else has the lock.
    fn open_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a file and locks it. A left-over of the same name loses its content, but only
    /// once the lock shows that nobody else is using it.
    ///
    /// # Errors
    /// `WouldBlock` if somebody else has the lock.
    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a directory and those above it.
    ///
    /// # Errors
    /// What the file system says.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it; there may be none.
    ///
    /// # Errors
    /// What the file system says.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, in any order.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    fn names_in(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Renames a file or a directory.
    ///
    /// # Errors
    /// What the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the file system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Whatever is on disk then is unknown.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// The next segment is prepared by a thread while the present one fills. A disk whose
    /// every call must come in a known order says no.
    fn prepares_ahead(&self) -> bool {
        true
    }
}

/// An open file. Its lock, if it has one, goes with the last clone.
pub trait DiskFile: Send {
    /// Reads some bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// What the file system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes; the file grows if it must.
    ///
    /// # Errors
    /// Whatever is on disk then is unknown.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes content durable, and the size as far as reading needs it.
    ///
    /// # Errors
    /// Whatever is on disk then is unknown.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes everything about the file durable.
    ///
    /// # Errors
    /// Whatever is on disk then is unknown.
    fn sync_all(&self) -> io::Result<()>;

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// Whatever is on disk then is unknown.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Size of the file.
    ///
    /// # Errors
    /// What the file system says.
    fn file_bytes(&self) -> io::Result<u64>;

    /// The same open file once more.
    ///
    /// # Errors
    /// What the system says.
    fn try_clone(&self) -> io::Result<Box<dyn DiskFile>>;
}

/// Where a log is: a directory, and the disk it is on. Made from a path alone it is on
/// [`StdDisk`].
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
