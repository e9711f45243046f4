//! Creates logs and opens existing ones.
//!
//! Both return a [`Wal`] that holds the lock and appends at the first free
//! byte. A crash at any point leaves no log, the old one, or a complete one.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use bytes::Bytes;
use portunus_proto::walpb::Snapshot;

use crate::{
    SEGMENT_BYTES, Wal,
    disk::{DiskFile, LogDir},
    errors::{CreateError, OpenError, ReadError},
    invariants::LogPosition,
    prepare::SegmentPreparer,
    reader::Records,
    record::BatchEncoder,
    recovery::{Recovered, Replay, SnapshotPoint, replay},
    segment_name::{SegmentName, list_segments, segments_from},
    zeros::fill_with_zeros,
};

/// Layout options of a log. The default is etcd's.
#[derive(Debug, Clone, Copy)]
pub struct WalOptions {
    /// Size at which a new segment is started.
    pub segment_bytes: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
        }
    }
}

impl WalOptions {
    /// Creates a log; see [`Wal::create`].
    ///
    /// # Errors
    /// If the directory holds files already or cannot be written.
    pub fn create(self, dir: impl Into<LogDir>, metadata: Bytes) -> Result<Wal, CreateError> {
        let dir = dir.into();
        let occupied = dir
            .disk
            .names_in(&dir.path)
            .is_ok_and(|names| !names.is_empty());
        if occupied {
            return Err(CreateError::NotEmpty { dir: dir.path });
        }
        self.create_in(&dir, metadata)
            .map_err(|source| CreateError::Io {
                dir: dir.path,
                source,
            })
    }

    /// Builds the log under another name first, so that a crash leaves either
    /// no log or a complete one.
    fn create_in(self, log_dir: &LogDir, metadata: Bytes) -> io::Result<Wal> {
        let LogDir { disk, path: dir } = log_dir;
        let mut building = dir.as_os_str().to_owned();
        building.push(".tmp");
        let building = PathBuf::from(building);
        disk.remove_dir(&building)?;
        disk.create_dir(&building)?;

        let tail_name = SegmentName {
            sequence: 0,
            first_index: 0,
        };
        let tail = disk.create_locked(&tail_name.path_in(&building))?;
        fill_with_zeros(&*tail, 0, self.segment_bytes, &AtomicBool::new(false))?;
        let mut encoder = BatchEncoder::continuing(0);
        encoder.segment_head(&metadata);
        encoder.snapshot(&Snapshot::default());
        let offset = encoder.bytes().len() as u64;
        tail.write_all_at(encoder.bytes(), 0)?;
        encoder.clear();
        tail.sync_all()?;
        disk.sync_dir(&building)?;

        disk.rename(&building, dir)?;
        disk.sync_dir(parent_of(dir))?;
        Ok(Wal {
            preparer: SegmentPreparer::start(log_dir, self.segment_bytes)?,
            dir: log_dir.clone(),
            segment_bytes: self.segment_bytes,
            metadata,
            tail,
            tail_name,
            tail_file_bytes: self.segment_bytes.max(offset),
            offset,
            older: Vec::new(),
            encoder,
            position: LogPosition::default(),
            unsynced: false,
            poisoned: false,
        })
    }

    /// Opens a log; see [`Wal::open`].
    ///
    /// # Errors
    /// If the log is in use, damaged, or does not contain the snapshot.
    pub fn open(
        self,
        dir: impl Into<LogDir>,
        from: SnapshotPoint,
    ) -> Result<(Wal, Recovered), OpenError> {
        let log_dir = dir.into();
        let dir = log_dir.path.as_path();
        let (segments, tail_name, tail) = lock_tail(&log_dir)?;
        let needed =
            segments_from(&segments, from.index).ok_or_else(|| OpenError::SnapshotTooOld {
                dir: dir.to_owned(),
                index: from.index,
            })?;
        let tail_path = tail_name.path_in(dir);
        let io_error = |source| OpenError::Io {
            path: tail_path.clone(),
            source,
        };
        let tail_for_reading = tail.try_clone().map_err(io_error)?;
        let records = Records::over(&log_dir, needed, Some(tail_for_reading))?;
        // `needed` is not empty: it ends with the tail.
        let first = needed.first().copied().unwrap_or(tail_name);
        let Replay {
            recovered,
            position,
            offset,
            tail_file_bytes,
            crc,
        } = replay(dir, first, records, from)?;

        // Overwrite a torn write: new records could end in the middle of it. Extend the segment
        // with zeros, so that appends do not grow the file.
        let never = AtomicBool::new(false);
        if let Some(torn) = &recovered.torn_tail {
            fill_with_zeros(&*tail, offset, offset + torn.bytes, &never).map_err(io_error)?;
        }
        if tail_file_bytes < self.segment_bytes {
            fill_with_zeros(&*tail, tail_file_bytes, self.segment_bytes, &never)
                .map_err(io_error)?;
        }
        // A killed process may have left its last writes, and the name of its last segment, in the
        // page cache only. From here on raft treats them as persisted.
        tail.sync_data().map_err(io_error)?;
        for named in [dir, parent_of(dir)] {
            let sync_error = |source| OpenError::Io {
                path: named.to_owned(),
                source,
            };
            log_dir.disk.sync_dir(named).map_err(sync_error)?;
        }
        let wal = Wal {
            preparer: SegmentPreparer::start(&log_dir, self.segment_bytes).map_err(io_error)?,
            dir: log_dir.clone(),
            segment_bytes: self.segment_bytes,
            metadata: recovered.metadata.clone(),
            tail,
            tail_name,
            tail_file_bytes: tail_file_bytes.max(self.segment_bytes),
            offset,
            older: segments[..segments.len() - 1].to_vec(),
            encoder: BatchEncoder::continuing(crc),
            position,
            unsynced: false,
            poisoned: false,
        };
        Ok((wal, recovered))
    }
}

/// The parent directory of `dir`.
fn parent_of(dir: &Path) -> &Path {
    match dir.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

type LockedTail = (Vec<SegmentName>, SegmentName, Box<dyn DiskFile>);

/// Locks the last segment of the log.
fn lock_tail(log_dir: &LogDir) -> Result<LockedTail, OpenError> {
    let dir = log_dir.path.as_path();
    loop {
        let segments = list_segments(log_dir).map_err(ReadError::io(dir))?;
        let Some(tail_name) = segments.last().copied() else {
            return Err(OpenError::Read(ReadError::NoLog {
                dir: dir.to_owned(),
            }));
        };
        let path = tail_name.path_in(dir);
        let tail = log_dir
            .disk
            .open_locked(&path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => OpenError::Locked { file: path },
                _ => OpenError::Io { path, source },
            })?;
        // A writer may have started its next segment between the listing and
        // the lock; then the locked segment is not the tail.
        if list_segments(log_dir).map_err(ReadError::io(dir))? == segments {
            return Ok((segments, tail_name, tail));
        }
    }
}
