//! Replays the records of a log into the persisted state of raft.
//!
//! Reads from a snapshot on, keeps the newest entry for each index, and refuses
//! a sequence of records that no raft log can have. Never writes.

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

/// The snapshot at which a log is opened. Zero is the start of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// Last index the snapshot covers.
    pub index: u64,
    /// Term of that index.
    pub term: u64,
}

/// The state recovered when a log was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// The metadata given to `create`.
    pub metadata: Bytes,
    /// The last hard state; default if there is none.
    pub hard_state: HardState,
    /// Entries after the snapshot, without gaps. Those beyond
    /// `hard_state.commit` may yet be replaced.
    pub entries: Vec<Entry>,
    /// The snapshot the log was opened at, as recorded.
    pub snapshot: Snapshot,
    /// A torn write that was removed. The server should log it.
    pub torn_tail: Option<TornTail>,
}

/// The recovered state, and the position of the writer.
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
    // Entries before the first segment existed but were released.
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
                            requested: from.term,
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

/// The newest entry for each index after that of the opening snapshot.
struct KeptEntries {
    start_index: u64,
    /// Term of the entry or snapshot at `start_index`, if one was read.
    start_term: Option<u64>,
    entries: Vec<Entry>,
    /// A gap between entries. Harmless if later entries replace those after it: they belong to the
    /// log before a snapshot that was recorded, but not installed before a crash.
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

    /// Adds an entry, which replaces the entry at its index and all later ones.
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

    /// Applies the opening snapshot. If the log has the entry at its index and term, the snapshot
    /// is local. Otherwise it is from the leader and replaces the whole log: entries with higher
    /// indexes that precede it in the file belong to another history.
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

/// Returns the snapshots at which a log can be opened, oldest first: the
/// recorded ones whose index is committed. A newer one was recorded before the
/// commit that covers it was persisted.
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
