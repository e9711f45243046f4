//! Pages of the file that a scan only passed through.
//!
//! Reading a page of the mapped file makes it count as memory of this process,
//! although the kernel's cache has it anyway. A scan reads all of them, once, so
//! it gives them back as it goes.

use std::{ffi::c_void, ptr::NonNull};

use nix::sys::mman::{MmapAdvise, madvise};

/// Bytes of entries between two times that pages are given back.
const PASSED_BYTES_MAX: usize = 16 << 20;

/// The system's pages are this or a multiple of it. Where they are larger, the
/// system may refuse; then the pages stay.
const PAGE_BYTES: usize = 4096;

/// Where entries were read since pages were last given back.
pub(super) struct PassedPages {
    lowest: *const u8,
    highest: *const u8,
    entry_bytes: usize,
}

impl PassedPages {
    pub(super) fn none() -> Self {
        Self {
            lowest: std::ptr::without_provenance(usize::MAX),
            highest: std::ptr::null(),
            entry_bytes: 0,
        }
    }

    /// An entry was read, and is not needed any more.
    ///
    /// # Safety
    ///
    /// All entries told to one of these lie in one file that is mapped for
    /// reading only, and stays so until this is dropped.
    pub(super) unsafe fn passed(&mut self, entry: &[u8]) {
        let ends = entry.as_ptr_range();
        self.lowest = self.lowest.min(ends.start);
        self.highest = self.highest.max(ends.end);
        self.entry_bytes += entry.len();
        if self.entry_bytes >= PASSED_BYTES_MAX {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        let first_page = self
            .lowest
            .map_addr(|address| address - address % PAGE_BYTES);
        let bytes = self.highest.addr().saturating_sub(first_page.addr());
        self.lowest = std::ptr::without_provenance(usize::MAX);
        self.highest = std::ptr::null();
        self.entry_bytes = 0;
        if let Some(first_page) = NonNull::new(first_page.cast_mut().cast::<c_void>())
            && bytes > 0
        {
            // SAFETY: both ends, so every page in between, are in the map of a
            // file (see `passed`). It is only read, so nothing in the pages can
            // be lost, and who reads them again gets them from the file.
            let given_back = unsafe { madvise(first_page, bytes, MmapAdvise::MADV_DONTNEED) };
            // Refused: they stay, as they would have without this.
            let _ = given_back;
        }
    }
}

impl Drop for PassedPages {
    fn drop(&mut self) {
        self.give_back();
    }
}
