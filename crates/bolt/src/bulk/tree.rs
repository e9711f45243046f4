//! Divides entries into pages: the only code that decides the shape of the file.
//!
//! [`DatabaseBuilder`] takes buckets and entries in order and divides them into pages. A [`Sink`]
//! handles the pages: the planner's sink discards them, the writers' sink writes them. Pages are
//! numbered in the order they are finished, so a stream of them is the file.

use std::io;

use super::branches::{BranchNode, Branches};
use super::directory::BucketRoot;
use crate::format::{BUCKET_HEADER_BYTES, COUNT_MARKER, ELEMENT_BYTES, PAGE_HEADER_BYTES, PageId};

/// Longest key (and bucket name) that bbolt accepts.
pub const KEY_BYTES_MAX: usize = 32_768;
/// Longest value that bbolt accepts.
pub const VALUE_BYTES_MAX: u64 = (1 << 31) - 2;
/// Fill level at which the next page is started. etcd uses the same for its `key` bucket, because
/// it only appends there.
const FILL_PERCENT: u64 = 90;

/// An error of writing entries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A write to the target failed. The output is not a valid database; discard it.
    #[error("cannot write the database")]
    Io(#[from] io::Error),
    /// A bucket is not in ascending name order, or is repeated.
    #[error("bucket {:?} does not come after the bucket before it", name.escape_ascii().to_string())]
    BucketOrder {
        /// The name out of order.
        name: Vec<u8>,
    },
    /// A key is not in ascending order, or is repeated.
    #[error(
        "key {:?} in bucket {:?} does not come after the key before it",
        key.escape_ascii().to_string(),
        bucket.escape_ascii().to_string()
    )]
    KeyOrder {
        /// The bucket.
        bucket: Vec<u8>,
        /// The key out of order.
        key: Vec<u8>,
    },
    /// A key or bucket name does not have 1 to [`KEY_BYTES_MAX`] bytes.
    #[error("a key or bucket name of {bytes} bytes; 1 to {KEY_BYTES_MAX} are possible")]
    KeyLength {
        /// Length of the key or name.
        bytes: usize,
    },
    /// A value is longer than [`VALUE_BYTES_MAX`] bytes.
    #[error("a value of {bytes} bytes; at most {VALUE_BYTES_MAX} are possible")]
    ValueLength {
        /// Length of the value.
        bytes: u64,
    },
    /// An entry was added before any bucket was started.
    #[error("an entry belongs to a bucket; begin one first")]
    NoBucket,
    /// The entries differ from the planned ones. The output is not a valid database; discard it,
    /// and read both passes from one fixed revision.
    #[error("the entries changed between planning and writing")]
    SourceChanged,
    /// An earlier call failed, so the output is invalid.
    #[error("writing failed before; start again with a new target")]
    FailedBefore,
}

/// The position of a page: its number and its length in pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub first: PageId,
    pub pages: u64,
}

/// A consumer of finished pages.
pub(crate) trait Sink {
    /// The part of a value that the sink needs: its length, or its bytes.
    type Value<'v>: Copy;

    fn value_bytes(value: Self::Value<'_>) -> u64;
    fn bucket_header(header: &[u8; BUCKET_HEADER_BYTES]) -> Self::Value<'_>;

    /// Adds an entry to the leaf that is being filled.
    fn add_leaf_entry(&mut self, is_bucket: bool, key: &[u8], value: Self::Value<'_>);
    /// Finishes the leaf, which holds the entries passed to `add_leaf_entry` since the last leaf.
    fn finish_leaf(&mut self, span: Span) -> io::Result<()>;
    /// Writes a leaf with one entry that is too large to share a page.
    fn single_entry_leaf(
        &mut self,
        span: Span,
        is_bucket: bool,
        key: &[u8],
        value: Self::Value<'_>,
    ) -> io::Result<()>;
    fn branch(&mut self, span: Span, node: &BranchNode) -> io::Result<()>;
}

/// Allocates pages for finished branches.
pub(crate) trait BranchPages {
    fn branch(&mut self, node: &BranchNode) -> Result<PageId, WriteError>;
}

/// Numbers pages and passes them to the sink.
struct Pages<S> {
    sink: S,
    page_bytes: u64,
    next: u64,
    /// Planned number of pages.
    limit: u64,
}

impl<S> Pages<S> {
    fn allocate(&mut self, bytes: u64) -> Result<Span, WriteError> {
        let pages = bytes.div_ceil(self.page_bytes);
        let span = Span {
            first: PageId(self.next),
            pages,
        };
        if pages > self.limit - self.next {
            return Err(WriteError::SourceChanged);
        }
        self.next += pages;
        Ok(span)
    }
}

impl<S: Sink> BranchPages for Pages<S> {
    fn branch(&mut self, node: &BranchNode) -> Result<PageId, WriteError> {
        let span = self.allocate(node.page_bytes())?;
        self.sink.branch(span, node)?;
        Ok(span.first)
    }
}

/// The tree of one bucket, or of the top level, during writing.
#[derive(Debug, Default)]
struct Tree {
    branches: Branches,
    leaf_count: usize,
    leaf_bytes: u64,
    leaf_first_key: Vec<u8>,
}

impl Tree {
    fn entry<S: Sink>(
        &mut self,
        pages: &mut Pages<S>,
        is_bucket: bool,
        key: &[u8],
        value: S::Value<'_>,
    ) -> Result<(), WriteError> {
        let fill_bytes = pages.page_bytes * FILL_PERCENT / 100;
        let entry_bytes = (ELEMENT_BYTES + key.len()) as u64 + S::value_bytes(value);
        let full = self.leaf_count > 0
            && (self.leaf_bytes + entry_bytes > fill_bytes
                || self.leaf_count >= usize::from(COUNT_MARKER) - 1);
        if full {
            self.close_leaf(pages)?;
        }
        if self.leaf_count == 0 {
            let alone_bytes = PAGE_HEADER_BYTES as u64 + entry_bytes;
            if alone_bytes > fill_bytes {
                let span = pages.allocate(alone_bytes)?;
                pages.sink.single_entry_leaf(span, is_bucket, key, value)?;
                return self.branches.push(key, span.first, fill_bytes, pages);
            }
            self.leaf_bytes = PAGE_HEADER_BYTES as u64;
            self.leaf_first_key.clear();
            self.leaf_first_key.extend_from_slice(key);
        }
        pages.sink.add_leaf_entry(is_bucket, key, value);
        self.leaf_count += 1;
        self.leaf_bytes += entry_bytes;
        Ok(())
    }

    fn close_leaf<S: Sink>(&mut self, pages: &mut Pages<S>) -> Result<(), WriteError> {
        let fill_bytes = pages.page_bytes * FILL_PERCENT / 100;
        let span = pages.allocate(self.leaf_bytes)?;
        pages.sink.finish_leaf(span)?;
        self.leaf_count = 0;
        self.branches
            .push(&self.leaf_first_key, span.first, fill_bytes, pages)
    }

    /// Returns the root; the tree is empty afterwards and ready for the next bucket.
    fn finish<S: Sink>(&mut self, pages: &mut Pages<S>) -> Result<PageId, WriteError> {
        let fill_bytes = pages.page_bytes * FILL_PERCENT / 100;
        if self.leaf_count > 0 {
            self.close_leaf(pages)?;
        }
        if let Some(root) = self.branches.finish(fill_bytes, pages)? {
            return Ok(root);
        }
        // An empty tree is one empty leaf.
        let span = pages.allocate(PAGE_HEADER_BYTES as u64)?;
        pages.sink.finish_leaf(span)?;
        Ok(span.first)
    }
}

/// The shape of the finished database, for the metas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub root: PageId,
    pub high_water: u64,
    pub entries: u64,
    pub buckets: Vec<BucketRoot>,
}

/// Divides buckets and entries, given in order, into pages.
pub(crate) struct DatabaseBuilder<S> {
    pages: Pages<S>,
    tree: Tree,
    /// Finished buckets, for the top level.
    finished: Vec<BucketRoot>,
    current: Option<Vec<u8>>,
    last_key: Vec<u8>,
    entries: u64,
    failed: bool,
}

impl<S: Sink> DatabaseBuilder<S> {
    /// Creates a builder. `page_limit` is the planned number of pages, or `u64::MAX`.
    pub fn new(sink: S, page_bytes: u32, page_limit: u64) -> Self {
        Self {
            pages: Pages {
                sink,
                page_bytes: u64::from(page_bytes),
                // Pages 0 and 1 are the metas.
                next: 2,
                limit: page_limit,
            },
            tree: Tree::default(),
            finished: Vec::new(),
            current: None,
            last_key: Vec::new(),
            entries: 0,
            failed: false,
        }
    }

    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.pages.sink
    }

    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        check_key_length(name)?;
        if self.current.as_deref().is_some_and(|last| name <= last) {
            return Err(WriteError::BucketOrder {
                name: name.to_vec(),
            });
        }
        self.unless_failed(|builder| {
            builder.finish_bucket()?;
            builder.current = Some(name.to_vec());
            builder.last_key.clear();
            Ok(())
        })
    }

    pub fn entry(&mut self, key: &[u8], value: S::Value<'_>) -> Result<(), WriteError> {
        let Some(bucket) = &self.current else {
            return Err(WriteError::NoBucket);
        };
        check_key_length(key)?;
        let bytes = S::value_bytes(value);
        if bytes > VALUE_BYTES_MAX {
            return Err(WriteError::ValueLength { bytes });
        }
        // `last_key` is empty before the bucket's first entry, and less than any key then.
        if key <= self.last_key.as_slice() {
            return Err(WriteError::KeyOrder {
                bucket: bucket.clone(),
                key: key.to_vec(),
            });
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.unless_failed(|builder| {
            builder.entries += 1;
            builder.tree.entry(&mut builder.pages, false, key, value)
        })
    }

    /// Writes the top level. The caller writes the metas.
    pub fn finish(mut self) -> Result<(S, Shape), WriteError> {
        let root = self.unless_failed(|builder| {
            builder.finish_bucket()?;
            for bucket in &builder.finished {
                let header = bucket.header();
                let value = S::bucket_header(&header);
                let name = &bucket.name;
                builder.tree.entry(&mut builder.pages, true, name, value)?;
            }
            builder.tree.finish(&mut builder.pages)
        })?;
        let shape = Shape {
            root,
            high_water: self.pages.next,
            entries: self.entries,
            buckets: self.finished,
        };
        Ok((self.pages.sink, shape))
    }

    fn finish_bucket(&mut self) -> Result<(), WriteError> {
        if let Some(name) = self.current.take() {
            let root = self.tree.finish(&mut self.pages)?;
            self.finished.push(BucketRoot { name, root });
        }
        Ok(())
    }

    fn unless_failed<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        if self.failed {
            return Err(WriteError::FailedBefore);
        }
        let result = work(self);
        self.failed = result.is_err();
        result
    }
}

fn check_key_length(key: &[u8]) -> Result<(), WriteError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(WriteError::KeyLength { bytes: key.len() });
    }
    Ok(())
}
