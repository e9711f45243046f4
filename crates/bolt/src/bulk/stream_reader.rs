//! Reads a database of the bulk writers sequentially while it arrives, without a file.
//!
//! The caller is the receiver of a leader's snapshot. Entries are passed on as their leaves arrive,
//! so they must not be used before [`StreamReader::read`] has returned: only then the database is
//! known to be complete. To verify it, the reader builds the same database from the entries and
//! compares each received page with the one it would have written: position, extent, count, and for
//! a branch every key and child.
//!
//! Files written by bbolt have their pages in any order. This reader refuses them.
//!
//! Memory: two leaves, and the branches before the next leaf.

use std::collections::VecDeque;
use std::io::{self, Read};

use bytes::Bytes;

use super::branches::BranchNode;
use super::directory::{self, BucketRoot, Directory};
use super::tree::{DatabaseBuilder, Sink, Span, WriteError};
use super::writers::BulkOptions;
use crate::cursor::DEPTH_MAX;
use crate::format::{BUCKET_HEADER_BYTES, PAGE_HEADER_BYTES, PageHeader, PageId};
use crate::meta::Meta;
use crate::page::{Page, PageKind, ReadError};

/// Bytes at the start of a file that show whether it can be read as a stream: both metas, at the
/// writers' page size.
pub const STREAM_HEAD_BYTES: usize = 2 * BulkOptions::PAGE_BYTES as usize;

/// Maximum buffer allocated in advance for a page; a longer page grows as it arrives, regardless of
/// its header.
const PAGE_BUFFER_BYTES: usize = 1 << 20;

/// An error of reading a stream. The entries read so far are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The stream could not be read, or ended early.
    #[error("the received database is incomplete")]
    Io(#[from] io::Error),
    /// A page is damaged.
    #[error("the received database is damaged")]
    Read(#[from] ReadError),
    /// A page differs from the one that its entries produce.
    #[error("the received database is damaged: page {page} is not in its place")]
    Misplaced {
        /// The page, or the last page read if a page is missing.
        page: PageId,
    },
    /// The stream continues after its last page.
    #[error("the received database is longer than its page count")]
    TooLong,
}

/// A database that arrives in the order in which the bulk writers write it.
pub struct StreamReader<R> {
    pages: PageStream<R>,
    meta: Meta,
    directory: Directory,
}

impl<R: Read> StreamReader<R> {
    /// Creates a reader. `head` is the first [`STREAM_HEAD_BYTES`] of the file, `rest` all that
    /// follows. Returns `rest` if the file cannot be read as a stream; it may still be a database.
    pub fn new(head: &[u8], rest: R) -> Result<Self, R> {
        let Some((meta, directory)) = decode_head(head) else {
            return Err(rest);
        };
        Ok(Self {
            pages: PageStream {
                source: rest,
                page_bytes: meta.page_bytes as usize,
                next: 2,
                high_water: meta.high_water,
            },
            meta,
            directory,
        })
    }

    /// Length of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.meta.high_water * u64::from(self.meta.page_bytes)
    }

    /// Reads to the end; calls `each` with bucket, key and value of every entry, in order.
    pub fn read<E: From<StreamError>>(
        mut self,
        mut each: impl FnMut(&[u8], Bytes, Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut builder = DatabaseBuilder::new(
            ReceivedPages::default(),
            self.meta.page_bytes,
            self.meta.high_water,
        );
        for bucket in &self.directory.buckets {
            let misplaced = |_| StreamError::Misplaced { page: bucket.root };
            builder.bucket(&bucket.name).map_err(misplaced)?;
            self.pages.tree(bucket, &mut builder, &mut each)?;
        }
        self.read_top_level(builder)?;
        Ok(())
    }

    fn read_top_level(
        mut self,
        mut builder: DatabaseBuilder<ReceivedPages>,
    ) -> Result<(), StreamError> {
        let mut buckets = self.directory.buckets.iter();
        while self.pages.next < self.meta.high_water {
            let received = self.pages.next()?;
            let page = received.page()?;
            for index in 0..page.count {
                if page.kind == PageKind::Branch {
                    break;
                }
                let element = page.leaf_element(index)?;
                let matches_directory = buckets.next().is_some_and(|bucket| {
                    element.is_bucket
                        && *element.key == *bucket.name
                        && element.value == bucket.header()
                });
                if !matches_directory {
                    return Err(received.misplaced());
                }
            }
            builder.sink_mut().push(&received)?;
        }
        let misplaced = StreamError::Misplaced {
            page: self.meta.root,
        };
        let Ok((received, shape)) = builder.finish() else {
            return Err(misplaced);
        };
        let matches_directory = shape.root == self.meta.root
            && shape.high_water == self.meta.high_water
            && shape.entries == self.directory.entries
            && shape.buckets == self.directory.buckets
            && buckets.next().is_none()
            && received.waiting.is_empty();
        if !matches_directory {
            return Err(misplaced);
        }
        match self.pages.source.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(StreamError::TooLong),
        }
    }
}

/// Decodes the meta and the directory, if `head` is the start of a stream.
fn decode_head(head: &[u8]) -> Option<(Meta, Directory)> {
    let page_bytes = BulkOptions::PAGE_BYTES as usize;
    if head.len() != STREAM_HEAD_BYTES {
        return None;
    }
    let (first_page, second_page) = head.split_at_checked(page_bytes)?;
    let meta_of = |page: &[u8]| Meta::decode(page.get(PAGE_HEADER_BYTES..)?).ok();
    let (first, second) = (meta_of(first_page)?, meta_of(second_page)?);
    // Unchanged since it was written: bbolt's next transaction would change page 1.
    let is_unchanged = first.page_bytes as usize == page_bytes
        && first.freelist.is_none()
        && second
            == Meta {
                txid: first.txid.checked_sub(1)?,
                ..first
            };
    // A page count larger than any possible file is left to [`crate::Reader`].
    let is_possible = first.high_water <= u64::MAX / u64::from(first.page_bytes);
    if !is_unchanged || !is_possible {
        return None;
    }
    Some((first, directory::decode(first_page)?))
}

/// The pages of the source.
struct PageStream<R> {
    source: R,
    page_bytes: usize,
    next: u64,
    high_water: u64,
}

impl<R: Read> PageStream<R> {
    fn next(&mut self) -> Result<ReceivedPage, StreamError> {
        let id = PageId(self.next);
        if id.0 >= self.high_water {
            return Err(StreamError::Misplaced { page: id });
        }
        let mut head = [0; PAGE_HEADER_BYTES];
        self.source.read_exact(&mut head)?;
        let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let header = PageHeader::decode(&head).ok_or_else(ended)?;
        if header.id != id.0 {
            let found = header.id;
            return Err(ReadError::PageId { page: id, found }.into());
        }
        let pages = u64::from(header.overflow) + 1;
        let overflow = header.overflow;
        let beyond = ReadError::Overflow { page: id, overflow };
        if pages > self.high_water - id.0 {
            return Err(beyond.into());
        }
        let bytes = usize::try_from(pages).ok();
        let bytes = bytes.and_then(|pages| pages.checked_mul(self.page_bytes));
        let bytes = bytes.ok_or(beyond)?;
        let mut page = Vec::with_capacity(bytes.min(PAGE_BUFFER_BYTES));
        page.extend_from_slice(&head);
        let left = (bytes - head.len()) as u64;
        (&mut self.source).take(left).read_to_end(&mut page)?;
        if page.len() < bytes {
            return Err(ended().into());
        }
        self.next += pages;
        Ok(ReceivedPage {
            header,
            pages,
            bytes: page.into(),
        })
    }

    /// Reads all pages of a bucket; its root is the last.
    fn tree<E: From<StreamError>>(
        &mut self,
        bucket: &BucketRoot,
        builder: &mut DatabaseBuilder<ReceivedPages>,
        each: &mut impl FnMut(&[u8], Bytes, Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        // The builder finishes some branches with the last entry before them and some with the
        // first one after. So it gets a leaf only after the next leaf and all branches in between
        // have arrived.
        let mut last_leaf: Option<ReceivedPage> = None;
        loop {
            let received = self.next()?;
            let id = received.id();
            builder.sink_mut().push(&received)?;
            let is_leaf = received.page().map_err(StreamError::Read)?.kind == PageKind::Leaf;
            if is_leaf && let Some(leaf) = last_leaf.replace(received) {
                leaf.entries(bucket, builder, each)?;
            }
            if id == bucket.root {
                break;
            }
            if id > bucket.root {
                return Err(StreamError::Misplaced { page: id }.into());
            }
        }
        last_leaf.map_or(Ok(()), |leaf| leaf.entries(bucket, builder, each))
    }
}

struct ReceivedPage {
    header: PageHeader,
    pages: u64,
    bytes: Bytes,
}

impl ReceivedPage {
    fn id(&self) -> PageId {
        PageId(self.header.id)
    }

    fn page(&self) -> Result<Page<'_>, ReadError> {
        Page::new(self.id(), self.header, &self.bytes)
    }

    fn entries<E: From<StreamError>>(
        &self,
        bucket: &BucketRoot,
        builder: &mut DatabaseBuilder<ReceivedPages>,
        each: &mut impl FnMut(&[u8], Bytes, Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        let page = self.page().map_err(StreamError::Read)?;
        let id = page.id;
        for index in 0..page.count {
            let element = page.leaf_element(index).map_err(StreamError::Read)?;
            if element.is_bucket {
                let nested = ReadError::UnexpectedBucket { page: id, index };
                return Err(StreamError::Read(nested).into());
            }
            let entered = builder.entry(element.key, element.value.len() as u64);
            entered.map_err(|error| match error {
                WriteError::KeyOrder { .. } => ReadError::KeyOrder { page: id, index }.into(),
                _ => StreamError::Misplaced { page: id },
            })?;
            let key = self.bytes.slice_ref(element.key);
            each(&bucket.name, key, self.bytes.slice_ref(element.value))?;
        }
        Ok(())
    }

    fn misplaced(&self) -> StreamError {
        StreamError::Misplaced { page: self.id() }
    }
}

/// ReceivedPages pages that the builder has not reached yet.
#[derive(Default)]
struct ReceivedPages {
    waiting: VecDeque<ReceivedPage>,
    /// Entries given to the builder for the leaf that it is filling.
    held: usize,
}

impl ReceivedPages {
    fn push(&mut self, page: &ReceivedPage) -> Result<(), StreamError> {
        // Two leaves, and after each at most two branches per level.
        if self.waiting.len() > 4 * DEPTH_MAX {
            return Err(page.misplaced());
        }
        let is_leaf = page.page()?.kind == PageKind::Leaf;
        // Of a leaf only the header is used again.
        let bytes = if is_leaf {
            Bytes::new()
        } else {
            page.bytes.clone()
        };
        self.waiting.push_back(ReceivedPage { bytes, ..*page });
        Ok(())
    }

    /// Returns the received page at the builder's position, if position and length match.
    fn at(&mut self, span: Span) -> io::Result<ReceivedPage> {
        let is_same = |page: &ReceivedPage| page.id() == span.first && page.pages == span.pages;
        self.waiting
            .pop_front()
            .filter(is_same)
            .ok_or_else(misplaced)
    }

    fn leaf_of(&mut self, span: Span, count: usize) -> io::Result<()> {
        let page = self.at(span)?;
        let is_leaf = page.header.flags == crate::format::FLAG_LEAF;
        let is_same = is_leaf && usize::from(page.header.count) == count;
        is_same.then_some(()).ok_or_else(misplaced)
    }
}

/// An error that the builder returns to the reader, which adds the page.
fn misplaced() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl Sink for ReceivedPages {
    type Value<'v> = u64;

    fn value_bytes(value: u64) -> u64 {
        value
    }

    fn bucket_header(header: &[u8; BUCKET_HEADER_BYTES]) -> u64 {
        header.len() as u64
    }

    fn add_leaf_entry(&mut self, _: bool, _: &[u8], _: u64) {
        self.held += 1;
    }

    fn finish_leaf(&mut self, span: Span) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        self.leaf_of(span, held)
    }

    fn single_entry_leaf(&mut self, span: Span, _: bool, _: &[u8], _: u64) -> io::Result<()> {
        self.leaf_of(span, 1)
    }

    fn branch(&mut self, span: Span, node: &BranchNode) -> io::Result<()> {
        let received = self.at(span)?;
        let page = received.page().map_err(|_| misplaced())?;
        if page.kind != PageKind::Branch || page.count != node.count() {
            return Err(misplaced());
        }
        let mut keys = node.keys();
        for (index, (child, key_bytes)) in node.children().enumerate() {
            let (key, rest) = keys.split_at_checked(key_bytes).ok_or_else(misplaced)?;
            let element = page.branch_element(index).map_err(|_| misplaced())?;
            if element.child != child || element.key != key {
                return Err(misplaced());
            }
            keys = rest;
        }
        Ok(())
    }
}
