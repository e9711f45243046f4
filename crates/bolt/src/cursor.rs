//! Walks a bucket's tree in key order.
//!
//! A cursor holds the path from the root to the next element. Three checks make it end on any
//! input: the path is no longer than [`DEPTH_MAX`], no more pages are entered than the file has,
//! and each key must be greater than the previous one. The third also finds a leaf that has two
//! parents and a parent with a wrong first key of a child.

use crate::bucket::Bucket;
use crate::format::PageId;
use crate::page::{Page, PageKind, ReadError};
use crate::reader::Reader;

/// A branch of a real tree has at least two children, so 64 levels would need 2^64 leaves.
pub(crate) const DEPTH_MAX: usize = 64;

/// One entry of a bucket.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'r> {
    /// The key; never empty.
    pub key: &'r [u8],
    /// The value, or the bucket nested under this key.
    pub value: EntryValue<'r>,
}

/// The value of a key.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum EntryValue<'r> {
    /// Plain bytes.
    Bytes(&'r [u8]),
    /// A nested bucket. etcd has none below its top level.
    Bucket(Bucket<'r>),
}

/// The entries of a bucket in key order, nested buckets included. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Entries<'r> {
    cursor: Cursor<'r>,
}

/// The keys and values of a bucket in key order; a nested bucket is an error.
/// Ends after the first error.
#[derive(Debug, Clone)]
pub struct Pairs<'r> {
    cursor: Cursor<'r>,
}

impl<'r> Entries<'r> {
    pub(crate) fn new(cursor: Cursor<'r>) -> Self {
        Self { cursor }
    }
}

impl<'r> Pairs<'r> {
    pub(crate) fn new(cursor: Cursor<'r>) -> Self {
        Self { cursor }
    }
}

impl<'r> Iterator for Entries<'r> {
    type Item = Result<Entry<'r>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let located = match self.cursor.next()? {
            Ok(located) => located,
            Err(error) => return Some(Err(error)),
        };
        if !located.is_bucket {
            return Some(Ok(Entry {
                key: located.key,
                value: EntryValue::Bytes(located.value),
            }));
        }
        let bucket = located.bucket(self.cursor.reader);
        if bucket.is_err() {
            self.cursor.stop();
        }
        Some(bucket.map(|bucket| Entry {
            key: located.key,
            value: EntryValue::Bucket(bucket),
        }))
    }
}

impl<'r> Iterator for Pairs<'r> {
    type Item = Result<(&'r [u8], &'r [u8]), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let located = match self.cursor.next()? {
            Ok(located) => located,
            Err(error) => return Some(Err(error)),
        };
        if located.is_bucket {
            self.cursor.stop();
            return Some(Err(ReadError::UnexpectedBucket {
                page: located.page,
                index: located.index,
            }));
        }
        Some(Ok((located.key, located.value)))
    }
}

/// A leaf element and its location.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocatedElement<'r> {
    pub page: PageId,
    pub index: usize,
    pub key: &'r [u8],
    pub value: &'r [u8],
    pub is_bucket: bool,
}

impl<'r> LocatedElement<'r> {
    pub fn bucket(&self, reader: &'r Reader) -> Result<Bucket<'r>, ReadError> {
        Bucket::decode(reader, self.page, self.index, self.value)
    }
}

/// The lower bound of the next key.
#[derive(Debug, Clone, Copy)]
enum LowerBound<'r> {
    None,
    /// First key of a child in its branch: the next key is equal or greater.
    FirstOfChild(&'r [u8]),
    /// Key of the last returned entry: the next key is greater.
    Returned(&'r [u8]),
}

impl LowerBound<'_> {
    fn admits(&self, key: &[u8]) -> bool {
        match self {
            LowerBound::None => true,
            LowerBound::FirstOfChild(floor) => key >= *floor,
            LowerBound::Returned(floor) => key > *floor,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Frame<'r> {
    page: Page<'r>,
    next_index: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Cursor<'r> {
    pub reader: &'r Reader,
    path: Vec<Frame<'r>>,
    pages_left: u64,
    floor: LowerBound<'r>,
    /// An error of positioning, which `next` returns first.
    failed: Option<ReadError>,
}

impl<'r> Cursor<'r> {
    /// A cursor at the first entry of the bucket.
    pub fn first(bucket: &Bucket<'r>) -> Self {
        let mut cursor = Self::new(bucket.reader());
        match bucket.root_page().and_then(|root| cursor.enter(root)) {
            Ok(()) => {}
            Err(error) => cursor.fail(error),
        }
        cursor
    }

    /// A cursor at the first entry whose key is `from` or greater.
    pub fn at(bucket: &Bucket<'r>, from: &[u8]) -> Self {
        let mut cursor = Self::new(bucket.reader());
        if let Err(error) = cursor.descend(bucket, from) {
            cursor.fail(error);
        }
        cursor
    }

    fn new(reader: &'r Reader) -> Self {
        Self {
            reader,
            path: Vec::with_capacity(8),
            pages_left: reader.meta().high_water,
            floor: LowerBound::None,
            failed: None,
        }
    }

    fn descend(&mut self, bucket: &Bucket<'r>, from: &[u8]) -> Result<(), ReadError> {
        let mut page = bucket.root_page()?;
        loop {
            self.enter(page)?;
            let index = match page.kind {
                PageKind::Leaf => page.lower_bound(from)?.0,
                PageKind::Branch => page.child_index(from)?,
            };
            // `enter` has just pushed this frame.
            if let Some(frame) = self.path.last_mut() {
                frame.next_index = index + usize::from(page.kind == PageKind::Branch);
            }
            if page.kind == PageKind::Leaf {
                return Ok(());
            }
            let element = page.branch_element(index)?;
            self.enter_child_range(page.id, index, element.key)?;
            page = self.reader.tree_page(element.child)?;
        }
    }

    fn enter_child_range(
        &mut self,
        page: PageId,
        index: usize,
        key: &'r [u8],
    ) -> Result<(), ReadError> {
        if !self.floor.admits(key) {
            return Err(ReadError::KeyOrder { page, index });
        }
        self.floor = LowerBound::FirstOfChild(key);
        Ok(())
    }

    fn enter(&mut self, page: Page<'r>) -> Result<(), ReadError> {
        if self.path.len() >= DEPTH_MAX {
            return Err(ReadError::TooDeep { page: page.id });
        }
        self.pages_left = self
            .pages_left
            .checked_sub(1)
            .ok_or(ReadError::PageShared { page: page.id })?;
        if page.kind == PageKind::Branch && page.count == 0 {
            return Err(ReadError::EmptyBranch { page: page.id });
        }
        self.path.push(Frame {
            page,
            next_index: 0,
        });
        Ok(())
    }

    pub fn stop(&mut self) {
        self.path.clear();
    }

    fn fail(&mut self, error: ReadError) {
        self.stop();
        self.failed = Some(error);
    }

    pub fn next(&mut self) -> Option<Result<LocatedElement<'r>, ReadError>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let step = self.step();
        if step.is_err() {
            self.stop();
        }
        step.transpose()
    }

    fn step(&mut self) -> Result<Option<LocatedElement<'r>>, ReadError> {
        loop {
            let Some(frame) = self.path.last_mut() else {
                return Ok(None);
            };
            let Frame { page, next_index } = *frame;
            if next_index >= page.count {
                self.path.pop();
                continue;
            }
            frame.next_index += 1;
            match page.kind {
                PageKind::Branch => {
                    let element = page.branch_element(next_index)?;
                    self.enter_child_range(page.id, next_index, element.key)?;
                    let child = self.reader.tree_page(element.child)?;
                    self.enter(child)?;
                }
                PageKind::Leaf => {
                    let element = page.leaf_element(next_index)?;
                    if !self.floor.admits(element.key) {
                        return Err(ReadError::KeyOrder {
                            page: page.id,
                            index: next_index,
                        });
                    }
                    self.floor = LowerBound::Returned(element.key);
                    return Ok(Some(LocatedElement {
                        page: page.id,
                        index: next_index,
                        key: element.key,
                        value: element.value,
                        is_bucket: element.is_bucket,
                    }));
                }
            }
        }
    }
}
