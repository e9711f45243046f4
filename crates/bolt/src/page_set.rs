//! A set of pages as a bitmap, for the checker.

use crate::format::PageId;

/// One bit per page.
pub(crate) struct PageSet {
    words: Vec<u64>,
    pages: u64,
}

impl PageSet {
    pub fn new(pages: u64) -> Self {
        // `pages` lie within the file, so this is at most 1/8192 of its length.
        Self {
            words: vec![0; usize::try_from(pages / 64 + 1).unwrap_or_default()],
            pages,
        }
    }

    fn word(&mut self, page: PageId) -> Option<&mut u64> {
        if page.0 >= self.pages {
            return None;
        }
        usize::try_from(page.0 / 64)
            .ok()
            .and_then(|word| self.words.get_mut(word))
    }

    /// Adds a page; false if it was in the set already or is out of range.
    pub fn insert(&mut self, page: PageId) -> bool {
        let bit = 1 << (page.0 % 64);
        self.word(page).is_some_and(|word| {
            let new = *word & bit == 0;
            *word |= bit;
            new
        })
    }

    pub fn contains(&mut self, page: PageId) -> bool {
        let bit = 1 << (page.0 % 64);
        self.word(page).is_some_and(|word| *word & bit != 0)
    }
}
