//! Prepares the next segment while the current one fills.
//!
//! A helper thread keeps exactly one file ready: full size, real zeros, synced,
//! locked, under a temporary name. Starting the next segment then costs a few
//! small syncs instead of a 64 MB write. The thread never accesses a file that
//! was taken. On a disk that needs a deterministic order of calls there is no
//! thread, and the segment is prepared when it is needed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use crate::{
    disk::{Disk, DiskFile, LogDir},
    errors::PrepareError,
    segment_name::PREPARED_EXTENSION,
    zeros::fill_with_zeros,
};

/// An empty segment under its temporary name.
pub(crate) struct PreparedSegment {
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn DiskFile>,
}

/// Prepares one segment at a path. A parameter, so that tests can simulate a full disk.
type PrepareOne = fn(&dyn Disk, &Path, u64, &AtomicBool) -> Result<Box<dyn DiskFile>, PrepareError>;

/// Handle to the helper thread; dropping it stops the thread and removes the prepared file.
pub(crate) struct SegmentPreparer {
    dir: LogDir,
    segment_bytes: u64,
    prepare_one: PrepareOne,
    /// `None` without a thread, and while being dropped.
    ready: Option<Receiver<Result<PreparedSegment, PrepareError>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SegmentPreparer {
    pub(crate) fn start(dir: &LogDir, segment_bytes: u64) -> io::Result<Self> {
        Self::start_with(dir, segment_bytes, prepare_one)
    }

    fn start_with(dir: &LogDir, segment_bytes: u64, prepare_one: PrepareOne) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut preparer = Self {
            dir: dir.clone(),
            segment_bytes,
            prepare_one,
            ready: None,
            stop: Arc::clone(&stop),
            thread: None,
        };
        if !dir.disk.prepares_ahead() {
            return Ok(preparer);
        }
        // Capacity zero: one file is ready, no further one is queued.
        let (sender, receiver) = sync_channel(0);
        let thread = thread::Builder::new().name("wal-prepare".into()).spawn({
            let dir = dir.clone();
            move || prepare_segments(&dir, segment_bytes, prepare_one, &sender, &stop)
        })?;
        preparer.ready = Some(receiver);
        preparer.thread = Some(thread);
        Ok(preparer)
    }

    /// Returns the prepared segment; waits if it is not ready yet.
    pub(crate) fn take(&mut self) -> Result<PreparedSegment, PrepareError> {
        match self.receive() {
            // The disk may have been full hours ago, when the segment was prepared. Try again now.
            Err(PrepareError::NoSpace { .. }) => {
                *self = Self::start_with(&self.dir, self.segment_bytes, self.prepare_one).map_err(
                    |source| PrepareError::of(&self.dir.path, self.segment_bytes, source),
                )?;
                self.receive()
            }
            received => received,
        }
    }

    fn receive(&self) -> Result<PreparedSegment, PrepareError> {
        match self.ready.as_ref().map(Receiver::recv) {
            Some(Ok(prepared)) => prepared,
            Some(Err(_)) => Err(PrepareError::HelperGone),
            None => {
                let path = prepared_path(&self.dir, 0);
                let disk = &*self.dir.disk;
                let file = (self.prepare_one)(disk, &path, self.segment_bytes, &self.stop)?;
                Ok(PreparedSegment { path, file })
            }
        }
    }
}

impl Drop for SegmentPreparer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread if it is blocked sending its file.
        self.ready = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

fn prepared_path(dir: &LogDir, turn: u8) -> PathBuf {
    dir.path.join(format!("{turn}.{PREPARED_EXTENSION}"))
}

fn prepare_segments(
    dir: &LogDir,
    segment_bytes: u64,
    prepare_one: PrepareOne,
    ready: &SyncSender<Result<PreparedSegment, PrepareError>>,
    stop: &AtomicBool,
) {
    // Two alternating names: the taken file still has its temporary name while
    // the next one is started.
    for turn in [0, 1].into_iter().cycle() {
        let path = prepared_path(dir, turn);
        let prepared = prepare_one(&*dir.disk, &path, segment_bytes, stop);
        let failed = prepared.is_err();
        if failed || stop.load(Ordering::Relaxed) {
            // A failed removal costs only space; the next start truncates the file.
            let _ = dir.disk.remove_file(&path);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let sent = ready.send(prepared.map(|file| PreparedSegment {
            path: path.clone(),
            file,
        }));
        if sent.is_err() {
            let _ = dir.disk.remove_file(&path);
            return;
        }
        if failed {
            return;
        }
    }
}

fn prepare_one(
    disk: &dyn Disk,
    path: &Path,
    segment_bytes: u64,
    stop: &AtomicBool,
) -> Result<Box<dyn DiskFile>, PrepareError> {
    let prepare = || {
        let file = disk.create_locked(path)?;
        fill_with_zeros(&*file, 0, segment_bytes, stop)?;
        // Size and allocation must be durable too, not only the zeros.
        file.sync_all()?;
        Ok(file)
    };
    prepare().map_err(|source: io::Error| PrepareError::of(path, segment_bytes, source))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn prepared_segments_hold_zeros_and_drop_removes_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut preparer = SegmentPreparer::start(&dir.path().into(), 5000).unwrap();
        for turn in 0..3 {
            let prepared = preparer.take().unwrap();
            assert_eq!(fs::read(&prepared.path).unwrap(), vec![0; 5000]);
            fs::rename(&prepared.path, dir.path().join(format!("{turn}.wal"))).unwrap();
        }
        drop(preparer);
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["0.wal", "1.wal", "2.wal"]);
    }

    #[test]
    fn existing_prepared_file_is_truncated_first() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("0.tmp"), vec![0xff; 9000]).unwrap();
        let mut preparer = SegmentPreparer::start(&dir.path().into(), 5000).unwrap();
        let prepared = preparer.take().unwrap();
        assert_eq!(fs::read(prepared.path).unwrap(), vec![0; 5000]);
    }

    #[test]
    fn take_returns_the_error_of_a_failed_preparation() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let mut preparer = SegmentPreparer::start(&(&missing).into(), 5000).unwrap();
        assert!(matches!(preparer.take(), Err(PrepareError::Io { .. })));
        assert!(matches!(preparer.take(), Err(PrepareError::HelperGone)));
    }

    fn full_disk(path: &Path, segment_bytes: u64) -> PrepareError {
        PrepareError::of(path, segment_bytes, io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn take_retries_after_an_earlier_full_disk() {
        static FULL: AtomicBool = AtomicBool::new(true);
        let dir = tempfile::tempdir().unwrap();
        let mut preparer =
            SegmentPreparer::start_with(&dir.path().into(), 5000, |disk, path, bytes, stop| {
                if FULL.swap(false, Ordering::Relaxed) {
                    return Err(full_disk(path, bytes));
                }
                prepare_one(disk, path, bytes, stop)
            })
            .unwrap();
        assert!(preparer.take().is_ok());
    }

    #[test]
    fn take_on_a_full_disk_returns_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let full = |_: &dyn Disk, path: &Path, bytes, _: &AtomicBool| Err(full_disk(path, bytes));
        let mut preparer = SegmentPreparer::start_with(&dir.path().into(), 5000, full).unwrap();
        let error = preparer.take().err().unwrap();
        assert!(matches!(error, PrepareError::NoSpace { bytes: 5000, .. }));
        assert!(error.to_string().contains("free space"), "{error}");
    }
}
