//! Opens a database file and finds its buckets.
//!
//! Callers are the import of an etcd data directory, the restore of a snapshot, and `portctl`. A
//! reader never writes to the file and copies nothing from it: keys and values are slices of the
//! mapped file.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::bucket::Bucket;
use crate::cursor::Cursor;
use crate::format::{
    COUNT_MARKER, FLAG_FREELIST, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PAGE_HEADER_BYTES, PageHeader,
    PageId, u64_at,
};
use crate::meta::{Meta, MetaFault};
use crate::page::{Page, ReadError};

/// An error of opening a file as a bbolt database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file could not be read.
    #[error("cannot read the database file")]
    Io(#[from] io::Error),
    /// Another process has the file open for writing.
    #[error("another process holds the database's write lock; stop that etcd or copy the file")]
    InUse,
    /// Neither meta page can be used.
    #[error("no usable meta page; page 0: {first}; page 1: {second}")]
    NoMeta {
        /// What is wrong with page 0.
        first: MetaFault,
        /// What is wrong with page 1.
        second: MetaFault,
    },
    /// The file ends before the last page in use.
    #[error(
        "the file is truncated: {file_bytes} bytes, but {pages} pages of {page_bytes} bytes are in use"
    )]
    Cut {
        /// Length of the file.
        file_bytes: u64,
        /// Pages in use, from the meta.
        pages: u64,
        /// Length of a page.
        page_bytes: u32,
    },
}

/// A bbolt database, open for reading.
#[derive(Debug)]
pub struct Reader {
    data: Bytes,
    meta: Meta,
}

/// The mapping and the handle that holds its lock, dropped together.
struct LockedMap {
    map: memmap2::Mmap,
    _locked: File,
}

impl AsRef<[u8]> for LockedMap {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Reader {
    /// Opens the file at `path`; a snapshot with its trailing digest is accepted.
    ///
    /// Takes the shared lock that bbolt's own read-only mode takes and holds it until the reader is
    /// dropped, so no etcd can write the file at the same time. If a program ignores the lock and
    /// truncates the file, this process ends with SIGBUS.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let file = File::open(path)?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        if file.metadata()?.len() == 0 {
            // An empty file cannot be mapped, and its metas are missing.
            return Self::from_bytes(Bytes::new());
        }
        // Reason for `unsafe`: databases reach many gigabytes, are scanned once, and keys and
        // values are returned as slices. Reading the file into memory needs as much memory as the
        // file is long and takes several times as long (benches/bulk.rs measures both).
        //
        // SAFETY: the slice stays valid and unchanged as long as no process changes the file. bbolt
        // takes the exclusive flock before it writes and this reader holds the shared one until the
        // map is dropped (`LockedMap` owns both), so no bbolt or etcd writes meanwhile; snapshots
        // are never changed after they are written. A process that ignores the lock cannot be
        // defended against; the documentation above states that.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Self::from_bytes(Bytes::from_owner(LockedMap { map, _locked: file }))
    }

    /// Opens a database that is already in memory.
    pub fn from_bytes(data: Bytes) -> Result<Self, OpenError> {
        let meta = choose_meta(&data)?;
        let reader = Self { data, meta };
        let available = reader.data.len() as u64 / u64::from(meta.page_bytes);
        if meta.high_water > available {
            return Err(OpenError::Cut {
                file_bytes: reader.data.len() as u64,
                pages: meta.high_water,
                page_bytes: meta.page_bytes,
            });
        }
        Ok(reader)
    }

    /// The meta in use: the valid one with the higher transaction id.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Bytes of all pages up to the high-water mark; the total size in the output of `etcdutl`. The
    /// file itself may be longer.
    pub fn database_bytes(&self) -> u64 {
        self.meta.high_water * u64::from(self.meta.page_bytes)
    }

    /// The top-level buckets in name order.
    pub fn buckets(&self) -> Buckets<'_> {
        Buckets {
            cursor: Cursor::first(&self.top()),
        }
    }

    /// Returns the top-level bucket of that name, if there is one.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'_>>, ReadError> {
        match self.top().find(name)? {
            None => Ok(None),
            Some(found) if found.is_bucket => found.bucket(self).map(Some),
            Some(found) => Err(ReadError::UnexpectedValue {
                page: found.page,
                index: found.index,
            }),
        }
    }

    /// The tree of the top level as a bucket.
    pub(crate) fn top(&self) -> Bucket<'_> {
        Bucket::with_root(self, self.meta.root, self.meta.root_sequence)
    }

    /// Returns a page of any type with its overflow; only position and extent are checked.
    fn raw_page(&self, id: PageId) -> Result<(PageHeader, &[u8]), ReadError> {
        let out_of_range = ReadError::PageOutOfRange {
            page: id,
            high_water: self.meta.high_water,
        };
        if id.0 < 2 || id.0 >= self.meta.high_water {
            return Err(out_of_range);
        }
        // `high_water` pages lie within the file, so this page's start does.
        let page_bytes = self.meta.page_bytes as usize;
        let from_page = usize::try_from(id.0)
            .ok()
            .and_then(|index| index.checked_mul(page_bytes))
            .and_then(|start| self.data.get(start..))
            .ok_or(out_of_range)?;
        let header = PageHeader::decode(from_page).ok_or(out_of_range)?;
        if header.id != id.0 {
            return Err(ReadError::PageId {
                page: id,
                found: header.id,
            });
        }
        let beyond = ReadError::Overflow {
            page: id,
            overflow: header.overflow,
        };
        let pages = u64::from(header.overflow) + 1;
        if pages > self.meta.high_water - id.0 {
            return Err(beyond);
        }
        let extent = usize::try_from(pages)
            .ok()
            .and_then(|pages| pages.checked_mul(page_bytes))
            .and_then(|bytes| from_page.get(..bytes))
            .ok_or(beyond)?;
        Ok((header, extent))
    }

    /// Returns a branch or leaf page.
    pub(crate) fn tree_page(&self, id: PageId) -> Result<Page<'_>, ReadError> {
        let (header, bytes) = self.raw_page(id)?;
        Page::new(id, header, bytes)
    }

    /// Number of overflow pages of page `id`.
    pub(crate) fn overflow(&self, id: PageId) -> Result<u32, ReadError> {
        self.raw_page(id).map(|(header, _)| header.overflow)
    }

    /// The stored list of free pages, unchecked; `None` if none is stored.
    pub fn freelist(&self) -> Result<Option<impl Iterator<Item = PageId> + '_>, ReadError> {
        let Some(page) = self.meta.freelist else {
            return Ok(None);
        };
        let (header, bytes) = self.raw_page(page)?;
        let damaged = ReadError::Freelist { page };
        if header.flags != FLAG_FREELIST {
            return Err(damaged);
        }
        let mut list = bytes.get(PAGE_HEADER_BYTES..).ok_or(damaged)?;
        let mut count = u64::from(header.count);
        if header.count == COUNT_MARKER {
            count = u64_at(list, 0).ok_or(damaged)?;
            list = list.get(8..).ok_or(damaged)?;
        }
        let length = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(8))
            .ok_or(damaged)?;
        let list = list.get(..length).ok_or(damaged)?;
        Ok(Some(list.chunks_exact(8).map(|id| {
            // Each chunk is eight bytes long.
            PageId(u64_at(id, 0).unwrap_or_default())
        })))
    }
}

/// Finds both metas and picks the newer valid one.
fn choose_meta(data: &[u8]) -> Result<Meta, OpenError> {
    let meta_at = |page_start: usize| {
        data.get(page_start + PAGE_HEADER_BYTES..)
            .ok_or(MetaFault::Missing)
            .and_then(Meta::decode)
    };
    match meta_at(0) {
        Ok(first) => {
            let second = meta_at(first.page_bytes as usize)
                .ok()
                .filter(|second| second.page_bytes == first.page_bytes);
            Ok(match second {
                Some(second) if second.txid > first.txid => second,
                _ => first,
            })
        }
        Err(first) => {
            // Page 0 is torn, so the page size is unknown; try every size for the second meta.
            let mut second_fault = MetaFault::Missing;
            let mut page_bytes = PAGE_BYTES_MIN;
            while page_bytes <= PAGE_BYTES_MAX {
                match meta_at(page_bytes as usize) {
                    Ok(second) if second.page_bytes == page_bytes => return Ok(second),
                    Ok(_) => second_fault = MetaFault::ForeignPageSize,
                    // A wrong magic means that there is no meta at this offset.
                    Err(MetaFault::Missing | MetaFault::Magic { .. }) => {}
                    Err(fault) => second_fault = fault,
                }
                page_bytes <<= 1;
            }
            Err(OpenError::NoMeta {
                first,
                second: second_fault,
            })
        }
    }
}

/// The top-level buckets in name order. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Buckets<'r> {
    cursor: Cursor<'r>,
}

impl<'r> Iterator for Buckets<'r> {
    type Item = Result<(&'r [u8], Bucket<'r>), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = match self.cursor.next()? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let bucket = if found.is_bucket {
            found.bucket(self.cursor.reader)
        } else {
            Err(ReadError::UnexpectedValue {
                page: found.page,
                index: found.index,
            })
        };
        if bucket.is_err() {
            self.cursor.stop();
        }
        Some(bucket.map(|bucket| (found.key, bucket)))
    }
}
