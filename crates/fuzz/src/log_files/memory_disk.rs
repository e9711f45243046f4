//! A disk in memory that never fails.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use portunus_wal::{Disk, DiskFile};

type Content = Arc<Mutex<Vec<u8>>>;

/// Files by their paths.
pub(crate) struct MemoryDisk {
    files: Mutex<BTreeMap<PathBuf, Content>>,
}

impl MemoryDisk {
    /// A disk with files in one directory.
    pub(crate) fn with_files(
        dir: &Path,
        files: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> MemoryDisk {
        let files = files.into_iter();
        let files = files.map(|(name, content)| (dir.join(name), Arc::new(Mutex::new(content))));
        MemoryDisk {
            files: Mutex::new(files.collect()),
        }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Content>> {
        self.files.lock().expect("an unpoisoned lock")
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let found = self.files().get(path).map(Arc::clone);
        let content = found.ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemoryFile(content)))
    }

    fn open_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let content = Content::default();
        self.files().insert(path.to_owned(), Arc::clone(&content));
        Ok(Box::new(MemoryFile(content)))
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.files().retain(|path, _| !path.starts_with(dir));
        Ok(())
    }

    fn names_in(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let files = self.files();
        let inside = files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside
            .filter_map(|path| Some(path.file_name()?.to_owned()))
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files();
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files().remove(path);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn prepares_ahead(&self) -> bool {
        false
    }
}

struct MemoryFile(Content);

impl MemoryFile {
    fn content(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("an unpoisoned lock")
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.content();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = content.get(from..).unwrap_or_default();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.content();
        let from = usize::try_from(offset).expect("a small offset");
        let end = from + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[from..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).expect("a small size");
        self.content().resize(bytes, 0);
        Ok(())
    }

    fn file_bytes(&self) -> io::Result<u64> {
        Ok(self.content().len() as u64)
    }

    fn try_clone(&self) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(MemoryFile(Arc::clone(&self.0))))
    }
}
