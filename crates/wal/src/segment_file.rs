//! The few things done to a segment's file, and nothing else.
//!
//! A trait so that tests can make any of them fail.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::lock;

/// Where the log writes.
pub(crate) trait SegmentFile: Send {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn sync_data(&self) -> io::Result<()>;
    fn set_len(&self, bytes: u64) -> io::Result<()>;
}

impl SegmentFile for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }
}

/// Readable by the owner only, like etcd's.
const FILE_MODE: u32 = 0o600;

/// Opens an existing segment for reading and appending, and locks it.
pub(crate) fn open_locked(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    lock::try_lock(&file)?;
    Ok(file)
}

/// Creates a file and locks it. A left-over of the same name loses its content,
/// but only once the lock shows that nobody else is using it.
pub(crate) fn create_locked(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(path)?;
    lock::try_lock(&file)?;
    file.set_len(0)?;
    Ok(file)
}

const ZEROS: &[u8] = &[0; 1 << 20];
/// The disk gets this much at a time, so that syncs of the tail segment never
/// queue behind a whole segment of zeros.
const ZEROS_BYTES_PER_SYNC: u64 = 8 << 20;

/// Writes real zeros to `[from, to)` and syncs. Merely reserving space would
/// leave the work of initialising blocks to the syncs that matter. Stops early,
/// without an error, once `stop` is set.
pub(crate) fn fill_with_zeros(
    file: &dyn SegmentFile,
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

/// Makes names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
