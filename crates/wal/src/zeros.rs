//! Fills segments with real zeros.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::disk::DiskFile;

const ZEROS: &[u8] = &[0; 1 << 20];
/// Bytes written between syncs, so that syncs of the tail segment never wait
/// for a whole segment of zeros.
const ZEROS_BYTES_PER_SYNC: u64 = 8 << 20;

/// Writes real zeros to `[from, to)` and syncs. If the space were only
/// reserved, later syncs of the log would have to initialise the blocks. Stops
/// early, without an error, once `stop` is set.
pub(crate) fn fill_with_zeros(
    file: &dyn DiskFile,
    from: u64,
    to: u64,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut offset = from;
    let mut unsynced_bytes = 0;
    while offset < to && !stop.load(Ordering::Relaxed) {
        let count = (to - offset).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..count as usize], offset)?;
        offset += count;
        unsynced_bytes += count;
        if unsynced_bytes >= ZEROS_BYTES_PER_SYNC {
            file.sync_data()?;
            unsynced_bytes = 0;
        }
    }
    file.sync_data()
}
