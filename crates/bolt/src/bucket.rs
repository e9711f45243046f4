//! One bucket of an open file: lookup and iteration of its keys.

use crate::cursor::{Cursor, DEPTH_MAX, Entries, LocatedElement, Pairs};
use crate::format::{BUCKET_HEADER_BYTES, FLAG_LEAF, PageHeader, PageId, u64_at};
use crate::page::{Page, PageKind, ReadError};
use crate::reader::Reader;

#[derive(Debug, Clone, Copy)]
enum Root<'r> {
    Page(PageId),
    /// A small bucket's only leaf, stored in the parent's value.
    Inline(Page<'r>),
}

/// A bucket: an ordered set of keys with their values.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'r> {
    reader: &'r Reader,
    root: Root<'r>,
    sequence: u64,
}

impl<'r> Bucket<'r> {
    /// A bucket with its own tree.
    pub(crate) fn with_root(reader: &'r Reader, root: PageId, sequence: u64) -> Self {
        Self {
            reader,
            root: Root::Page(root),
            sequence,
        }
    }

    /// Decodes a bucket from the value stored under its name in element `index` of `page`.
    pub(crate) fn decode(
        reader: &'r Reader,
        page: PageId,
        index: usize,
        value: &'r [u8],
    ) -> Result<Self, ReadError> {
        let damaged = ReadError::BucketHeader { page, index };
        let root = u64_at(value, 0).ok_or(damaged)?;
        let sequence = u64_at(value, 8).ok_or(damaged)?;
        let root = if root == 0 {
            let inline = value.get(BUCKET_HEADER_BYTES..).ok_or(damaged)?;
            let header = PageHeader::decode(inline).ok_or(damaged)?;
            if header.flags != FLAG_LEAF || header.id != 0 || header.overflow != 0 {
                return Err(damaged);
            }
            Root::Inline(Page::new(page, header, inline)?)
        } else {
            Root::Page(PageId(root))
        };
        Ok(Self {
            reader,
            root,
            sequence,
        })
    }

    /// The bucket's sequence counter; etcd does not use it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The root page of the bucket's tree; `None` if the bucket is stored inline in its parent.
    pub fn root(&self) -> Option<PageId> {
        match self.root {
            Root::Page(page) => Some(page),
            Root::Inline(_) => None,
        }
    }

    /// All keys and values in key order. A nested bucket is an error; see [`Bucket::entries`].
    pub fn iter(&self) -> Pairs<'r> {
        Pairs::new(Cursor::first(self))
    }

    /// The keys and values from the first key that is not less than `from`.
    pub fn iter_from(&self, from: &[u8]) -> Pairs<'r> {
        Pairs::new(Cursor::at(self, from))
    }

    /// All entries in key order, nested buckets included.
    pub fn entries(&self) -> Entries<'r> {
        Entries::new(Cursor::first(self))
    }

    /// Returns the value under `key`. A nested bucket under that key is an error.
    pub fn get(&self, key: &[u8]) -> Result<Option<&'r [u8]>, ReadError> {
        match self.find(key)? {
            Some(found) if found.is_bucket => Err(ReadError::UnexpectedBucket {
                page: found.page,
                index: found.index,
            }),
            found => Ok(found.map(|found| found.value)),
        }
    }

    pub(crate) fn reader(&self) -> &'r Reader {
        self.reader
    }

    pub(crate) fn root_page(&self) -> Result<Page<'r>, ReadError> {
        match self.root {
            Root::Page(page) => self.reader.tree_page(page),
            Root::Inline(page) => Ok(page),
        }
    }

    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<LocatedElement<'r>>, ReadError> {
        let mut page = self.root_page()?;
        for _ in 0..DEPTH_MAX {
            match page.kind {
                PageKind::Branch if page.count == 0 => {
                    return Err(ReadError::EmptyBranch { page: page.id });
                }
                PageKind::Branch => {
                    let child = page.branch_element(page.child_index(key)?)?.child;
                    page = self.reader.tree_page(child)?;
                }
                PageKind::Leaf => {
                    let (index, exact) = page.lower_bound(key)?;
                    if !exact {
                        return Ok(None);
                    }
                    let element = page.leaf_element(index)?;
                    return Ok(Some(LocatedElement {
                        page: page.id,
                        index,
                        key: element.key,
                        value: element.value,
                        is_bucket: element.is_bucket,
                    }));
                }
            }
        }
        Err(ReadError::TooDeep { page: page.id })
    }
}
