//! Turns the records of a log back into the state raft was in.
//!
//! Reads from a snapshot on, keeps the newest entry for each index, and refuses
//! a sequence of records that no raft log can have. Changes nothing on disk.

use std::path::Path;

use bytes::Bytes;
use portunus_proto::{
    raftpb::{Entry, HardState},
    walpb::Snapshot,
};

use crate::{
    disk::LogDir,
    errors::{Damage, OpenError, ReadError},
    invariants::{LogPosition, LogRuleViolation},
    reader::{Records, read_records},
    record::Record,
    segment_name::SegmentName,
    segment_reader::TornTail,
};

/// The snapshot a log is opened at. Zero is the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// Last index the snapshot covers.
    pub index: u64,
    /// Term of that index.
    pub term: u64,
}

/// What a log said when it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// Who wrote it, as given to `create`.
    pub metadata: Bytes,
    /// The last hard state; default if there is none.
    pub hard_state: HardState,
    /// Entries after the snapshot, without gaps. Those beyond
    /// `hard_state.commit` may yet be replaced.
    pub entries: Vec<Entry>,
    /// The snapshot the log was opened at, as recorded.
    pub snapshot: Snapshot,
    /// An interrupted write that was cut off. Worth a line in the server's log.
    pub torn_tail: Option<TornTail>,
}

/// State, and where the writer goes on.
pub(crate) struct Replay {
    pub(crate) recovered: Recovered,
    pub(crate) position: LogPosition,
    /// Offset in the last segment.
    pub(crate) offset: u64,
    pub(crate) tail_file_bytes: u64,
    pub(crate) crc: u32,
}

/// Reads `records`, which start with segment `first`, from snapshot `from` on.
pub(crate) fn replay(
    dir: &Path,
    first: SegmentName,
    mut records: Records,
    from: SnapshotPoint,
) -> Result<Replay, OpenError> {
    // Entries in front of the first segment are gone, but were there.
    let mut position = LogPosition {
        last_index: from.index.max(first.first_index.saturating_sub(1)),
        ..Default::default()
    };
    let mut metadata = Bytes::new();
    let mut kept = KeptEntries::after(from.index);
    let mut snapshot = None;

    while let Some((offset, record)) = records.next_record()? {
        let admitted = match record {
            Record::Crc(_) => Ok(()),
            Record::Metadata(data) => {
                metadata = data;
                Ok(())
            }
            Record::State(state) => position.admit_state(&state),
            Record::Entry(entry) => position.admit_entry(&entry).and_then(|()| kept.take(entry)),
            Record::Snapshot(found) => {
                position.admit_snapshot(&found);
                if found.index == from.index {
                    if found.term != from.term {
                        return Err(OpenError::SnapshotTermMismatch {
                            dir: dir.to_owned(),
                            index: from.index,
                            found: found.term,
                            asked: from.term,
                        });
                    }
                    kept.take_snapshot(&found);
                    snapshot = Some(found);
                }
                Ok(())
            }
        };
        admitted.map_err(|violation| ReadError::Damaged {
            file: records.file().to_owned(),
            offset,
            damage: Damage::Rule(violation),
        })?;
    }

    let Some(snapshot) = snapshot else {
        return Err(OpenError::SnapshotNotFound {
            dir: dir.to_owned(),
            index: from.index,
        });
    };
    let entries = kept.finish().map_err(|violation| ReadError::Damaged {
        file: records.file().to_owned(),
        offset: records.end().0,
        damage: Damage::Rule(violation),
    })?;
    let (offset, crc) = records.end();
    Ok(Replay {
        recovered: Recovered {
            metadata,
            hard_state: position.state,
            entries,
            snapshot,
            torn_tail: records.torn_tail().cloned(),
        },
        position,
        offset,
        tail_file_bytes: records.tail_file_bytes(),
        crc,
    })
}

/// The newest entry for each index behind the one the log is opened at.
struct KeptEntries {
    start_index: u64,
    /// Term of the entry at `start_index`, if the log has or had one.
    start_term: Option<u64>,
    entries: Vec<Entry>,
    /// Entries that do not follow. Harmless if something replaces them later: they belong to
    /// the log from before a snapshot that was recorded, but not taken before a crash.
    gap: Option<LogRuleViolation>,
}

impl KeptEntries {
    fn after(start_index: u64) -> Self {
        Self {
            start_index,
            start_term: None,
            entries: Vec::new(),
            gap: None,
        }
    }

    /// Puts an entry at its place; it replaces what was there and everything after.
    fn take(&mut self, entry: Entry) -> Result<(), LogRuleViolation> {
        if entry.index <= self.start_index {
            self.start_term = (entry.index == self.start_index).then_some(entry.term);
            self.entries.clear();
            self.gap = None;
            return Ok(());
        }
        let kept = usize::try_from(entry.index - self.start_index - 1).unwrap_or(usize::MAX);
        if kept > self.entries.len() {
            self.gap.get_or_insert(LogRuleViolation::EntryGap {
                index: entry.index,
                last_index: self.start_index + self.entries.len() as u64,
            });
            return Ok(());
        }
        self.gap = None;
        self.entries.truncate(kept);
        if let Some(previous) = self.entries.last()
            && previous.term > entry.term
        {
            return Err(LogRuleViolation::EntryTermDecreased {
                index: entry.index,
                term: entry.term,
                previous_term: previous.term,
            });
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Over an entry of its own term the snapshot marks a place in the log. Otherwise it is
    /// the leader's and takes the place of the whole log: what stands behind it in the
    /// file's order of indexes is of another history.
    fn take_snapshot(&mut self, snapshot: &Snapshot) {
        if self.start_term != Some(snapshot.term) {
            self.entries.clear();
            self.gap = None;
        }
        self.start_term = Some(snapshot.term);
    }

    fn finish(self) -> Result<Vec<Entry>, LogRuleViolation> {
        match self.gap {
            Some(violation) => Err(violation),
            None => Ok(self.entries),
        }
    }
}

/// The snapshots a log can be opened at, oldest first: those recorded whose
/// index is committed. A snapshot newer than that was recorded by a write that
/// never finished.
///
/// # Errors
/// If the log cannot be read.
pub fn valid_snapshots(dir: impl Into<LogDir>) -> Result<Vec<Snapshot>, ReadError> {
    let mut snapshots = Vec::new();
    let mut commit = 0;
    let mut records = read_records(dir)?;
    while let Some((_, record)) = records.next_record()? {
        match record {
            Record::Snapshot(snapshot) => snapshots.push(snapshot),
            Record::State(state) => commit = state.commit,
            Record::Metadata(_) | Record::Entry(_) | Record::Crc(_) => {}
        }
    }
    snapshots.retain(|snapshot| snapshot.index <= commit);
    Ok(snapshots)
}
