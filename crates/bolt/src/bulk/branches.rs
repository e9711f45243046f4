//! The upper levels of a tree that is built from its leaves.
//!
//! Each finished page is added with its first key to the level above, which collects children until
//! they fill a page. A level holds its last full page back until the next one is full too: if the
//! tree then ends with a single remaining child, that child is added to the page held back, so no
//! branch has fewer than two children.

use super::tree::{BranchPages, WriteError};
use crate::format::{COUNT_MARKER, ELEMENT_BYTES, PAGE_HEADER_BYTES, PageId};

/// The children of one branch page, with their first keys in one buffer.
#[derive(Debug, Default)]
pub(crate) struct BranchNode {
    children: Vec<(PageId, usize)>,
    keys: Vec<u8>,
}

impl BranchNode {
    fn push(&mut self, first_key: &[u8], page: PageId) {
        self.children.push((page, first_key.len()));
        self.keys.extend_from_slice(first_key);
    }

    fn clear(&mut self) {
        self.children.clear();
        self.keys.clear();
    }

    pub fn count(&self) -> usize {
        self.children.len()
    }

    /// Length of the resulting page.
    pub fn page_bytes(&self) -> u64 {
        (PAGE_HEADER_BYTES + self.count() * ELEMENT_BYTES + self.keys.len()) as u64
    }

    /// Page and key length of each child; the keys follow each other in [`BranchNode::keys`].
    pub fn children(&self) -> impl Iterator<Item = (PageId, usize)> + '_ {
        self.children.iter().copied()
    }

    pub fn keys(&self) -> &[u8] {
        &self.keys
    }

    fn first_key(&self) -> &[u8] {
        let length = self.children.first().map_or(0, |(_, bytes)| *bytes);
        self.keys.get(..length).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Level {
    /// A full page, held until the next one is full.
    held_back: BranchNode,
    filling: BranchNode,
}

/// All levels above the leaves, lowest first.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    levels: Vec<Level>,
}

impl Branches {
    /// Adds a finished page; `fill_bytes` is the size at which the next branch is started.
    pub fn push<P: BranchPages>(
        &mut self,
        first_key: &[u8],
        page: PageId,
        fill_bytes: u64,
        pages: &mut P,
    ) -> Result<(), WriteError> {
        self.push_at(0, first_key, page, fill_bytes, pages)
    }

    fn push_at<P: BranchPages>(
        &mut self,
        height: usize,
        first_key: &[u8],
        page: PageId,
        fill_bytes: u64,
        pages: &mut P,
    ) -> Result<(), WriteError> {
        if self.levels.len() <= height {
            self.levels.resize_with(height + 1, Level::default);
        }
        let level = &mut self.levels[height];
        let filling = &mut level.filling;
        let grown = filling.page_bytes() + (ELEMENT_BYTES + first_key.len()) as u64;
        // Two below the marker: one more child may be added at the end.
        let full = filling.count() >= 2
            && (grown > fill_bytes || filling.count() >= usize::from(COUNT_MARKER) - 2);
        if full {
            std::mem::swap(&mut level.held_back, filling);
            let finished = std::mem::take(filling);
            self.finish_node(height, finished, fill_bytes, pages)?;
        }
        self.levels[height].filling.push(first_key, page);
        Ok(())
    }

    /// Writes a node, if it has children, and adds it to the level above.
    fn finish_node<P: BranchPages>(
        &mut self,
        height: usize,
        mut node: BranchNode,
        fill_bytes: u64,
        pages: &mut P,
    ) -> Result<(), WriteError> {
        if node.count() > 0 {
            let id = pages.branch(&node)?;
            self.push_at(height + 1, node.first_key(), id, fill_bytes, pages)?;
        }
        // Reuse the buffers, so that a level allocates only while it grows.
        node.clear();
        let filling = &mut self.levels[height].filling;
        if filling.count() == 0 {
            *filling = node;
        }
        Ok(())
    }

    /// Finishes the tree and returns its root; the levels are empty afterwards. `None` if no page
    /// was pushed.
    pub fn finish<P: BranchPages>(
        &mut self,
        fill_bytes: u64,
        pages: &mut P,
    ) -> Result<Option<PageId>, WriteError> {
        let mut height = 0;
        while height < self.levels.len() {
            let top_height = self.levels.len() - 1;
            let level = &mut self.levels[height];
            let alone = level.filling.count() == 1;
            if alone && height == top_height && level.held_back.count() == 0 {
                // One page on this level: it is the root.
                let root = level.filling.children().next().map(|(page, _)| page);
                self.levels.clear();
                return Ok(root);
            }
            if alone && level.held_back.count() > 0 {
                let Level { held_back, filling } = level;
                for (page, _) in filling.children() {
                    held_back.push(filling.keys(), page);
                }
                filling.clear();
            }
            let held_back = std::mem::take(&mut level.held_back);
            let filling = std::mem::take(&mut level.filling);
            self.finish_node(height, held_back, fill_bytes, pages)?;
            self.finish_node(height, filling, fill_bytes, pages)?;
            height += 1;
        }
        Ok(None)
    }
}
