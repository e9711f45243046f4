//! One page of a tree, with every field checked before it is used.
//!
//! The cursor, the lookup and the checker all access the file through [`Page`]; none of them
//! computes an offset itself. A page never returns bytes outside its own, regardless of its
//! elements.

use crate::format::{
    ELEMENT_BYTES, ELEMENT_IS_BUCKET, FLAG_BRANCH, FLAG_LEAF, PAGE_HEADER_BYTES, PageHeader,
    PageId, u32_at, u64_at,
};

/// An inconsistency of the file, with the page that holds it.
///
/// A file that gives any of these is damaged: restore it from another member or from a snapshot
/// whose digest verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A reference points to a page that the file does not have, or to a meta.
    #[error("page {page} is referenced but the database has pages 2 to {high_water} (exclusive)")]
    PageOutOfRange {
        /// The referenced page.
        page: PageId,
        /// One past the last page.
        high_water: u64,
    },
    /// The page id in the header differs from the page's position.
    #[error("page {page} has page id {found} in its header")]
    PageId {
        /// Position of the page.
        page: PageId,
        /// Page id in its header.
        found: u64,
    },
    /// A page inside a tree is neither a branch nor a leaf.
    #[error("page {page} has type {flags:#06x}, which has no place in a tree")]
    PageType {
        /// The page.
        page: PageId,
        /// The flags in its header.
        flags: u16,
    },
    /// A page claims more following pages than the file has.
    #[error("page {page} claims {overflow} overflow pages, beyond the end of the database")]
    Overflow {
        /// The page.
        page: PageId,
        /// The claimed number.
        overflow: u32,
    },
    /// A page claims more elements than fit into it.
    #[error("page {page} claims {count} elements, more than fit")]
    Count {
        /// The page.
        page: PageId,
        /// The claimed number.
        count: usize,
    },
    /// An element's key or value lies outside its page, or inside the element table.
    #[error("element {index} of page {page} points outside the page's data")]
    Element {
        /// The page.
        page: PageId,
        /// The element, counted from 0.
        index: usize,
    },
    /// A key is empty, which bbolt never stores.
    #[error("element {index} of page {page} has an empty key")]
    EmptyKey {
        /// The page.
        page: PageId,
        /// The element, counted from 0.
        index: usize,
    },
    /// A key is not greater than the one before it, or not within its parent's bounds.
    #[error("element {index} of page {page} breaks the key order")]
    KeyOrder {
        /// The page.
        page: PageId,
        /// The element, counted from 0.
        index: usize,
    },
    /// A branch has no children.
    #[error("branch page {page} has no children")]
    EmptyBranch {
        /// The page.
        page: PageId,
    },
    /// The tree is deeper than any valid one; a page is its own ancestor.
    #[error("page {page} is nested deeper than any valid tree; the pages form a cycle")]
    TooDeep {
        /// The page at which the walk stopped.
        page: PageId,
    },
    /// The walk visited more pages than exist, so some page has two parents.
    #[error("page {page} was reached after more pages than the database has; a page is shared")]
    PageShared {
        /// The page at which the walk stopped.
        page: PageId,
    },
    /// An entry marked as a bucket does not hold a bucket header and, if inline, a leaf page.
    #[error("element {index} of page {page} is marked as a bucket but does not hold one")]
    BucketHeader {
        /// The page.
        page: PageId,
        /// The element, counted from 0.
        index: usize,
    },
    /// A plain value was expected and a nested bucket found.
    #[error("element {index} of page {page} is a nested bucket where a value was expected")]
    UnexpectedBucket {
        /// The page.
        page: PageId,
        /// The element, counted from 0.
        index: usize,
    },
    /// The top level holds a plain value among the buckets.
    #[error("element {index} of page {page} is a plain value among the top-level buckets")]
    UnexpectedValue {
        /// The page.
        page: PageId,
        /// The element, counted from 0.
        index: usize,
    },
    /// The freelist page does not hold a freelist.
    #[error("page {page} should hold the freelist but does not")]
    Freelist {
        /// The page.
        page: PageId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    Branch,
    Leaf,
}

/// A branch or leaf with its overflow pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    /// Position of the page; for an inline page, the page that contains it.
    pub id: PageId,
    pub kind: PageKind,
    pub count: usize,
    bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafElement<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub is_bucket: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BranchElement<'a> {
    pub key: &'a [u8],
    pub child: PageId,
}

impl<'a> Page<'a> {
    /// Checks the type and the element count of a page. `bytes` is the whole page including
    /// overflow; `header` was decoded from it.
    pub fn new(id: PageId, header: PageHeader, bytes: &'a [u8]) -> Result<Self, ReadError> {
        let kind = match header.flags {
            FLAG_BRANCH => PageKind::Branch,
            FLAG_LEAF => PageKind::Leaf,
            flags => return Err(ReadError::PageType { page: id, flags }),
        };
        let count = usize::from(header.count);
        if PAGE_HEADER_BYTES + count * ELEMENT_BYTES > bytes.len() {
            return Err(ReadError::Count { page: id, count });
        }
        Ok(Self {
            id,
            kind,
            count,
            bytes,
        })
    }

    /// Returns the `length` bytes that start `position` bytes after element `index`.
    fn data(&self, index: usize, position: u32, length: u64) -> Result<&'a [u8], ReadError> {
        let outside = ReadError::Element {
            page: self.id,
            index,
        };
        let table_end = (PAGE_HEADER_BYTES + self.count * ELEMENT_BYTES) as u64;
        let start = (PAGE_HEADER_BYTES + index * ELEMENT_BYTES) as u64 + u64::from(position);
        let end = start + length;
        if start < table_end {
            return Err(outside);
        }
        let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
            return Err(outside);
        };
        self.bytes.get(start..end).ok_or(outside)
    }

    fn element(&self, index: usize) -> Result<&'a [u8], ReadError> {
        let start = PAGE_HEADER_BYTES + index * ELEMENT_BYTES;
        self.bytes
            .get(start..start + ELEMENT_BYTES)
            .filter(|_| index < self.count)
            .ok_or(ReadError::Element {
                page: self.id,
                index,
            })
    }

    pub fn leaf_element(&self, index: usize) -> Result<LeafElement<'a>, ReadError> {
        let element = self.element(index)?;
        let word = |offset| u32_at(element, offset).unwrap_or_default();
        let (flags, position, key_bytes, value_bytes) = (word(0), word(4), word(8), word(12));
        let data = self.data(
            index,
            position,
            u64::from(key_bytes) + u64::from(value_bytes),
        )?;
        // `data` is as long as key and value together, so the key's length fits into it.
        let (key, value) = data.split_at(data.len().min(key_bytes as usize));
        self.refuse_empty_key(index, key)?;
        Ok(LeafElement {
            key,
            value,
            is_bucket: flags & ELEMENT_IS_BUCKET != 0,
        })
    }

    pub fn branch_element(&self, index: usize) -> Result<BranchElement<'a>, ReadError> {
        let element = self.element(index)?;
        let word = |offset| u32_at(element, offset).unwrap_or_default();
        let (position, key_bytes) = (word(0), word(4));
        let child = PageId(u64_at(element, 8).unwrap_or_default());
        let key = self.data(index, position, u64::from(key_bytes))?;
        self.refuse_empty_key(index, key)?;
        Ok(BranchElement { key, child })
    }

    fn refuse_empty_key(&self, index: usize, key: &[u8]) -> Result<(), ReadError> {
        if key.is_empty() {
            return Err(ReadError::EmptyKey {
                page: self.id,
                index,
            });
        }
        Ok(())
    }

    fn key(&self, index: usize) -> Result<&'a [u8], ReadError> {
        match self.kind {
            PageKind::Branch => self.branch_element(index).map(|element| element.key),
            PageKind::Leaf => self.leaf_element(index).map(|element| element.key),
        }
    }

    /// Returns the first element whose key is not less than `key`, and whether it is equal. On a
    /// page whose keys are out of order the result is some index; the search always ends.
    pub fn lower_bound(&self, key: &[u8]) -> Result<(usize, bool), ReadError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle)?.cmp(key) {
                std::cmp::Ordering::Equal => return Ok((middle, true)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok((low, false))
    }

    /// Returns the child of this branch that may hold `key`: the last one whose first key is not
    /// greater, or the first child.
    pub fn child_index(&self, key: &[u8]) -> Result<usize, ReadError> {
        let (index, exact) = self.lower_bound(key)?;
        Ok(if exact {
            index
        } else {
            index.saturating_sub(1)
        })
    }
}
