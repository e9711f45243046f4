//! Releases mapped pages that a scan has read.
//!
//! A page of the mapped file that was read counts as memory of this process,
//! although it stays in the kernel's cache. A scan reads each page once, so it
//! releases pages as it proceeds.

use std::{ffi::c_void, ptr::NonNull};

use nix::sys::mman::{MmapAdvise, madvise};

/// Bytes of entries read before pages are released.
const PASSED_BYTES_MAX: usize = 16 << 20;

/// The system's page size is this or a multiple of it. If it is larger, the
/// system may refuse; then the pages stay mapped.
const PAGE_BYTES: usize = 4096;

/// Address range of the entries read since pages were last released.
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

    /// Records that an entry was read and is no longer needed.
    ///
    /// # Safety
    ///
    /// All entries passed to one `PassedPages` lie in one file that is mapped
    /// read-only and stays mapped until it is dropped.
    pub(super) unsafe fn passed(&mut self, entry: &[u8]) {
        let ends = entry.as_ptr_range();
        self.lowest = self.lowest.min(ends.start);
        self.highest = self.highest.max(ends.end);
        self.entry_bytes += entry.len();
        if self.entry_bytes >= PASSED_BYTES_MAX {
            self.release();
        }
    }

    fn release(&mut self) {
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
            // file (see `passed`). The map is read-only, so no data can be
            // lost, and a later access reads the pages from the file.
            let released = unsafe { madvise(first_page, bytes, MmapAdvise::MADV_DONTNEED) };
            // On an error the pages stay mapped.
            let _ = released;
        }
    }
}

impl Drop for PassedPages {
    fn drop(&mut self) {
        self.release();
    }
}
