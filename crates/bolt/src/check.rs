//! The full consistency check: a superset of what `bbolt check` and `etcdutl snapshot status`
//! verify.
//!
//! Run before a foreign snapshot is used. While the reader stops at the first inconsistency, the
//! checker visits every page and collects all of them. It visits no page twice, so its run time is
//! linear in the file size.

use crate::bucket::Bucket;
use crate::format::PageId;
use crate::page::{Page, PageKind, ReadError};
use crate::page_set::PageSet;
use crate::reader::Reader;

/// Maximum number of problems in a report; all are counted.
pub const PROBLEMS_KEPT_MAX: usize = 1_000;

/// One inconsistency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A page or element is malformed, or out of order.
    #[error(transparent)]
    Malformed(#[from] ReadError),
    /// Two references point to the same page.
    #[error("page {page} is referenced more than once")]
    PageShared {
        /// The page.
        page: PageId,
    },
    /// Two elements of a page share bytes.
    #[error("element {index} of page {page} overlaps the element before it")]
    ElementsOverlap {
        /// The page.
        page: PageId,
        /// The later element, counted from 0.
        index: usize,
    },
    /// A bucket is nested inside an inline one, which bbolt never writes.
    #[error("element {index} of page {page} is a bucket inside an inline bucket")]
    BucketInInline {
        /// The page that contains the inline bucket.
        page: PageId,
        /// The element of the inline page, counted from 0.
        index: usize,
    },
    /// A page is in use and listed as free; the next commit would overwrite it.
    #[error("page {page} is in use but listed as free")]
    UsedAndFree {
        /// The page.
        page: PageId,
    },
    /// The freelist lists a page twice; it would be allocated twice.
    #[error("page {page} is listed as free twice")]
    FreeTwice {
        /// The page.
        page: PageId,
    },
    /// The freelist lists a page that does not exist or holds a meta.
    #[error("page {page} is listed as free but is no data page")]
    FreeOutOfRange {
        /// The page.
        page: PageId,
    },
    /// A page is neither used nor free; its space is lost.
    #[error("page {page} is neither in use nor listed as free")]
    Lost {
        /// The page.
        page: PageId,
    },
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The first [`PROBLEMS_KEPT_MAX`] inconsistencies.
    pub problems: Vec<Problem>,
    /// Number of all inconsistencies.
    pub problems_total: u64,
    /// Buckets, nested and inline ones included.
    pub buckets: u64,
    /// Entries that are not buckets.
    pub entries: u64,
    /// Pages in use, both metas and the freelist included.
    pub pages_used: u64,
    /// Pages below the high-water mark that are not in use.
    pub pages_free: u64,
}

impl Report {
    /// Whether no problem was found.
    pub fn is_clean(&self) -> bool {
        self.problems_total == 0
    }
}

/// Checks the whole file: every page is used once or free once, every element lies inside its
/// page, every key is in order and within its parent's bounds.
pub fn check(reader: &Reader) -> Report {
    let mut checker = Checker {
        reader,
        report: Report::default(),
        used: PageSet::new(reader.meta().high_water),
        pending: Vec::new(),
    };
    checker.run();
    checker.report
}

/// A page to visit, with the key range that its parents allow.
struct PendingPage<'r> {
    page: PageId,
    /// Smallest key allowed.
    from: Option<&'r [u8]>,
    /// First key not allowed.
    to: Option<&'r [u8]>,
    /// Whether the page belongs to the tree that lists the top-level buckets.
    top: bool,
}

struct Checker<'r> {
    reader: &'r Reader,
    report: Report,
    used: PageSet,
    pending: Vec<PendingPage<'r>>,
}

impl<'r> Checker<'r> {
    fn run(&mut self) {
        self.used.insert(PageId(0));
        self.used.insert(PageId(1));
        let mut free = PageSet::new(self.reader.meta().high_water);
        self.read_freelist(&mut free);

        self.pending.push(PendingPage {
            page: self.reader.meta().root,
            from: None,
            to: None,
            top: true,
        });
        while let Some(next) = self.pending.pop() {
            if let Err(error) = self.visit(&next) {
                self.problem(error);
            }
        }
        self.check_page_use(&mut free);
    }

    fn problem(&mut self, problem: impl Into<Problem>) {
        self.report.problems_total += 1;
        if self.report.problems.len() < PROBLEMS_KEPT_MAX {
            self.report.problems.push(problem.into());
        }
    }

    fn read_freelist(&mut self, free: &mut PageSet) {
        let Some(page) = self.reader.meta().freelist else {
            return;
        };
        match self.reader.freelist() {
            Ok(list) => {
                for id in list.into_iter().flatten() {
                    if id.0 < 2 || id.0 >= self.reader.meta().high_water {
                        self.problem(Problem::FreeOutOfRange { page: id });
                    } else if !free.insert(id) {
                        self.problem(Problem::FreeTwice { page: id });
                    }
                }
                if let Err(error) = self.mark_used(page) {
                    self.problem(error);
                }
            }
            Err(error) => self.problem(error),
        }
    }

    /// Marks the page and its overflow as used; false if any of them was used already.
    fn mark_used(&mut self, page: PageId) -> Result<bool, ReadError> {
        let overflow = self.reader.overflow(page)?;
        let mut alone = true;
        for id in page.0..=page.0 + u64::from(overflow) {
            if !self.used.insert(PageId(id)) {
                alone = false;
                self.problem(Problem::PageShared { page: PageId(id) });
            }
        }
        Ok(alone)
    }

    fn visit(&mut self, pending: &PendingPage<'r>) -> Result<(), ReadError> {
        let page = self.reader.tree_page(pending.page)?;
        // A page that was visited before is already checked.
        if !self.mark_used(pending.page)? {
            return Ok(());
        }
        match page.kind {
            PageKind::Branch => self.visit_branch(page, pending),
            PageKind::Leaf => {
                self.visit_leaf(page, pending);
                Ok(())
            }
        }
    }

    fn visit_branch(&mut self, page: Page<'r>, pending: &PendingPage<'r>) -> Result<(), ReadError> {
        if page.count == 0 {
            return Err(ReadError::EmptyBranch { page: page.id });
        }
        let mut order = Order::within(pending);
        let mut previous: Option<PendingPage<'r>> = None;
        for index in 0..page.count {
            let element = match page.branch_element(index) {
                Ok(element) => element,
                Err(error) => {
                    self.problem(error);
                    continue;
                }
            };
            if !order.accepts(element.key) {
                self.problem(ReadError::KeyOrder {
                    page: page.id,
                    index,
                });
            }
            let next = PendingPage {
                page: element.child,
                from: Some(element.key),
                to: pending.to,
                top: pending.top,
            };
            if let Some(mut done) = previous.replace(next) {
                done.to = Some(element.key);
                self.pending.push(done);
            }
        }
        self.pending.extend(previous);
        Ok(())
    }

    fn visit_leaf(&mut self, page: Page<'r>, pending: &PendingPage<'r>) {
        let mut order = Order::within(pending);
        self.visit_elements(page, &mut order, |checker, index, is_bucket, value| {
            if is_bucket {
                checker.visit_bucket(page.id, index, value);
            } else if pending.top {
                checker.problem(ReadError::UnexpectedValue {
                    page: page.id,
                    index,
                });
            } else {
                checker.report.entries += 1;
            }
        });
    }

    fn visit_bucket(&mut self, page: PageId, index: usize, value: &'r [u8]) {
        let bucket = match Bucket::decode(self.reader, page, index, value) {
            Ok(bucket) => bucket,
            Err(error) => return self.problem(error),
        };
        self.report.buckets += 1;
        match (bucket.root(), bucket.root_page()) {
            (Some(root), _) => self.pending.push(PendingPage {
                page: root,
                from: None,
                to: None,
                top: false,
            }),
            (None, Ok(inline)) => self.visit_inline(inline),
            (None, Err(error)) => self.problem(error),
        }
    }

    fn visit_inline(&mut self, inline: Page<'r>) {
        let mut order = Order::default();
        self.visit_elements(inline, &mut order, |checker, index, is_bucket, _| {
            if is_bucket {
                checker.problem(Problem::BucketInInline {
                    page: inline.id,
                    index,
                });
            } else {
                checker.report.entries += 1;
            }
        });
    }

    /// Calls `each` for every valid element. An element that overlaps the previous one is reported
    /// and skipped, so that a page's bytes are visited only once.
    fn visit_elements(
        &mut self,
        page: Page<'r>,
        order: &mut Order<'r>,
        mut each: impl FnMut(&mut Self, usize, bool, &'r [u8]),
    ) {
        let mut free_from = 0;
        for index in 0..page.count {
            let element = match page.leaf_element(index) {
                Ok(element) => element,
                Err(error) => {
                    self.problem(error);
                    continue;
                }
            };
            if !order.accepts(element.key) {
                self.problem(ReadError::KeyOrder {
                    page: page.id,
                    index,
                });
            }
            let start = element.key.as_ptr().addr();
            if start < free_from {
                self.problem(Problem::ElementsOverlap {
                    page: page.id,
                    index,
                });
                continue;
            }
            free_from = start + element.key.len() + element.value.len();
            each(self, index, element.is_bucket, element.value);
        }
    }

    /// Checks that every page is either used or free.
    fn check_page_use(&mut self, free: &mut PageSet) {
        let list_stored = self.reader.meta().freelist.is_some();
        for page in (0..self.reader.meta().high_water).map(PageId) {
            match (self.used.contains(page), free.contains(page)) {
                (true, listed) => {
                    self.report.pages_used += 1;
                    if listed {
                        self.problem(Problem::UsedAndFree { page });
                    }
                }
                (false, listed) => {
                    self.report.pages_free += 1;
                    if list_stored && !listed {
                        self.problem(Problem::Lost { page });
                    }
                }
            }
        }
    }
}

/// Checks that the keys of a page ascend within the parent's bounds.
#[derive(Default)]
struct Order<'r> {
    from: Option<&'r [u8]>,
    to: Option<&'r [u8]>,
    previous: Option<&'r [u8]>,
}

impl<'r> Order<'r> {
    fn within(pending: &PendingPage<'r>) -> Self {
        Self {
            from: pending.from,
            to: pending.to,
            previous: None,
        }
    }

    fn accepts(&mut self, key: &'r [u8]) -> bool {
        let after_previous = match self.previous.replace(key) {
            Some(previous) => key > previous,
            None => self.from.is_none_or(|from| key >= from),
        };
        after_previous && self.to.is_none_or(|to| key < to)
    }
}
