//! The write interface of the log.

use std::mem;

use bytes::Bytes;
use portunus_proto::{
    raftpb::{Entry, HardState},
    walpb::Snapshot,
};

use crate::{
    disk::{DiskFile, LogDir},
    errors::{CreateError, OpenError, ReleaseError, WriteError},
    invariants::{LogPosition, LogRuleViolation},
    opening::WalOptions,
    prepare::SegmentPreparer,
    record::BatchEncoder,
    recovery::{Recovered, SnapshotPoint},
    segment_name::{SegmentName, segments_from},
};

/// A write-ahead log, open for appending. Its lock allows only one per directory.
///
/// After a write or sync has failed, every later write returns an error: the
/// state on disk is unknown until a restart reads it. Dropping the log writes
/// nothing: records that were appended but neither saved nor synced are lost.
pub struct Wal {
    pub(crate) dir: LogDir,
    pub(crate) segment_bytes: u64,
    pub(crate) metadata: Bytes,
    /// The segment being appended to; holds the lock on the log.
    pub(crate) tail: Box<dyn DiskFile>,
    pub(crate) tail_name: SegmentName,
    pub(crate) tail_file_bytes: u64,
    /// Where the next batch goes.
    pub(crate) offset: u64,
    /// Segments before the tail, oldest first.
    pub(crate) older: Vec<SegmentName>,
    pub(crate) encoder: BatchEncoder,
    pub(crate) position: LogPosition,
    /// Whether anything was written since the last sync.
    pub(crate) unsynced: bool,
    pub(crate) poisoned: bool,
    pub(crate) preparer: SegmentPreparer,
}

impl Wal {
    /// Creates a log in `dir`, which must not exist or be empty. `metadata`
    /// identifies its member and is repeated in every segment.
    ///
    /// # Errors
    /// If the directory holds files already or cannot be written.
    pub fn create(dir: impl Into<LogDir>, metadata: Bytes) -> Result<Self, CreateError> {
        WalOptions::default().create(dir, metadata)
    }

    /// Opens the log in `dir` and replays it from a snapshot that was recorded with
    /// [`Self::save_snapshot`]; [`SnapshotPoint::default`] is the beginning. A torn write at the
    /// end of the log is removed and reported.
    ///
    /// # Errors
    /// If the log is in use, damaged, or does not contain the snapshot.
    pub fn open(
        dir: impl Into<LogDir>,
        from: SnapshotPoint,
    ) -> Result<(Self, Recovered), OpenError> {
        WalOptions::default().open(dir, from)
    }

    /// Writes a batch: one write, and one sync if `must_sync`. Entries go before
    /// the state, so that no prefix of a batch commits what it does not hold.
    ///
    /// # Errors
    /// See [`WriteError`]; only `Rejected` leaves the log usable.
    pub fn save(
        &mut self,
        hard_state: Option<&HardState>,
        entries: &[Entry],
        must_sync: bool,
    ) -> Result<(), WriteError> {
        self.append(hard_state, entries)?;
        self.write_out(must_sync)
    }

    /// Adds records to the batch in memory without writing. Returns the size of
    /// the batch, which the next [`Self::sync`] or [`Self::save`] writes.
    ///
    /// # Errors
    /// If the records break a rule of the log, or an earlier write failed.
    pub fn append(
        &mut self,
        hard_state: Option<&HardState>,
        entries: &[Entry],
    ) -> Result<usize, WriteError> {
        self.refuse_if_poisoned()?;
        // An all-zero state means "no change" in raft.
        let hard_state = hard_state.filter(|state| **state != HardState::default());

        // All or nothing: check all records before encoding any.
        let mut position = self.position;
        for entry in entries {
            position.admit_entry(entry)?;
        }
        if let Some(state) = hard_state {
            position.admit_state(state)?;
        }
        self.position = position;

        for entry in entries {
            self.encoder.entry(entry);
        }
        if let Some(state) = hard_state {
            self.encoder.state(state);
        }
        Ok(self.encoder.bytes().len())
    }

    /// Writes the appended records and makes all writes durable.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.refuse_if_poisoned()?;
        self.write_out(true)
    }

    /// Records durably that a snapshot holds the state up to its index. The log
    /// can be opened at it from now on.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn save_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), WriteError> {
        self.refuse_if_poisoned()?;
        // Old logs may hold such records; etcd also refuses to write them.
        if snapshot.index > 0 && snapshot.conf_state.is_none() {
            return Err(WriteError::Rejected(
                LogRuleViolation::SnapshotWithoutMembers {
                    index: snapshot.index,
                },
            ));
        }
        self.position.admit_snapshot(snapshot);
        self.encoder.snapshot(snapshot);
        self.write_out(true)
    }

    /// Removes the segments that are not needed to open the log at a snapshot
    /// with this index or a later one. Returns the number of removed segments.
    ///
    /// # Errors
    /// If a file cannot be removed; the log stays usable.
    pub fn release_to(&mut self, index: u64) -> Result<usize, ReleaseError> {
        let mut all = self.older.clone();
        all.push(self.tail_name);
        let needed = segments_from(&all, index).map_or(all.len(), <[_]>::len);
        let count = all.len() - needed;
        // Oldest first, so that the remaining segments have no gap.
        for name in &all[..count] {
            let file = name.path_in(&self.dir.path);
            self.dir
                .disk
                .remove_file(&file)
                .map_err(|source| ReleaseError { file, source })?;
            self.older.remove(0);
        }
        Ok(count)
    }

    /// Index of the last entry or snapshot in the log.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.position.last_index
    }

    /// The newest hard state.
    #[must_use]
    pub fn hard_state(&self) -> HardState {
        self.position.state
    }

    /// Number of segment files.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.older.len() + 1
    }

    fn refuse_if_poisoned(&self) -> Result<(), WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned);
        }
        Ok(())
    }

    /// Writes the batch, syncs if `must_sync` is set, and starts the next
    /// segment if the current one is full.
    fn write_out(&mut self, must_sync: bool) -> Result<(), WriteError> {
        // Poisoned until success, so that every early return leaves the log poisoned.
        self.poisoned = true;
        if !self.encoder.bytes().is_empty() {
            self.tail
                .write_all_at(self.encoder.bytes(), self.offset)
                .map_err(|source| WriteError::Write {
                    file: self.tail_name.path_in(&self.dir.path),
                    source,
                })?;
            self.offset += self.encoder.bytes().len() as u64;
            self.tail_file_bytes = self.tail_file_bytes.max(self.offset);
            self.encoder.clear();
            self.unsynced = true;
        }
        let full = self.offset >= self.segment_bytes;
        if full {
            self.begin_next_segment()?;
        } else if must_sync && self.unsynced {
            self.sync_tail()?;
        }
        self.poisoned = false;
        Ok(())
    }

    fn sync_tail(&mut self) -> Result<(), WriteError> {
        self.tail.sync_data().map_err(|source| WriteError::Sync {
            path: self.tail_name.path_in(&self.dir.path),
            source,
        })?;
        self.unsynced = false;
        Ok(())
    }

    /// Finishes the tail and continues in the prepared segment, whose head is
    /// written before the rename, so every named segment has a complete head.
    fn begin_next_segment(&mut self) -> Result<(), WriteError> {
        if self.tail_file_bytes > self.offset {
            self.tail
                .set_len(self.offset)
                .map_err(|source| WriteError::Write {
                    file: self.tail_name.path_in(&self.dir.path),
                    source,
                })?;
        }
        self.sync_tail()?;

        let prepared = self.preparer.take()?;
        self.encoder.segment_head(&self.metadata);
        if self.position.state != HardState::default() {
            self.encoder.state(&self.position.state);
        }
        let head = self.encoder.bytes();
        prepared
            .file
            .write_all_at(head, 0)
            .map_err(|source| WriteError::Write {
                file: prepared.path.clone(),
                source,
            })?;
        prepared
            .file
            .sync_data()
            .map_err(|source| WriteError::Sync {
                path: prepared.path.clone(),
                source,
            })?;

        let name = SegmentName {
            sequence: self.tail_name.sequence.saturating_add(1),
            first_index: self.position.last_index.saturating_add(1),
        };
        let path = name.path_in(&self.dir.path);
        self.dir
            .disk
            .rename(&prepared.path, &path)
            .map_err(|source| WriteError::Rename { file: path, source })?;
        self.dir
            .disk
            .sync_dir(&self.dir.path)
            .map_err(|source| WriteError::Sync {
                path: self.dir.path.clone(),
                source,
            })?;

        self.offset = head.len() as u64;
        self.tail_file_bytes = self.segment_bytes.max(self.offset);
        self.encoder.clear();
        self.tail = prepared.file;
        self.older.push(mem::replace(&mut self.tail_name, name));
        Ok(())
    }
}

#[cfg(test)]
mod failure_tests;
