//! Reads a whole log, segment by segment, and verifies every record it returns:
//! the checksum chain through all segments, and the head of each segment.
//! Recovery checks the sequence of records. Never writes.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::{
    disk::{DiskFile, LogDir},
    errors::{Damage, ReadError},
    payload,
    record::{Record, RecordHeader, RecordKind, extend_crc},
    segment_name::{SegmentName, list_segments},
    segment_reader::{Frame, SegmentReader, TornTail},
};

/// A record and its location.
#[derive(Debug, Clone, PartialEq)]
pub struct LocatedRecord {
    /// The segment.
    pub file: PathBuf,
    /// Offset of the record's length field.
    pub offset: u64,
    /// The record.
    pub record: Record,
}

/// Iterates over all records in a directory, for tools and tests. Takes no lock
/// and changes nothing; a log in use may appear to end in a torn write.
///
/// # Errors
/// If there is no log, a segment is missing, or a file cannot be opened.
pub fn read_records(dir: impl Into<LogDir>) -> Result<Records, ReadError> {
    let dir = dir.into();
    let segments = list_segments(&dir).map_err(ReadError::io(&dir.path))?;
    Records::over(&dir, &segments, None)
}

/// Iterator over records; see [`read_records`].
pub struct Records {
    dir: LogDir,
    /// Segments not yet read, next one last.
    unread: Vec<SegmentName>,
    /// The writer's handle of the last segment, if the writer reads.
    locked_tail: Option<Box<dyn DiskFile>>,
    segment: SegmentReader,
    /// Records read from this segment so far.
    position_in_segment: u64,
    /// `None` until the first checksum record.
    crc: Option<u32>,
    metadata: Option<Bytes>,
    torn_tail: Option<TornTail>,
    finished: bool,
}

impl Records {
    pub(crate) fn over(
        dir: &LogDir,
        segments: &[SegmentName],
        locked_tail: Option<Box<dyn DiskFile>>,
    ) -> Result<Self, ReadError> {
        if let Some(pair) = segments
            .windows(2)
            .find(|pair| pair[0].sequence.checked_add(1) != Some(pair[1].sequence))
        {
            return Err(ReadError::MissingSegment {
                dir: dir.path.clone(),
                next: pair[1].to_string(),
            });
        }
        let mut unread: Vec<_> = segments.iter().rev().copied().collect();
        let Some(first) = unread.pop() else {
            return Err(ReadError::NoLog {
                dir: dir.path.clone(),
            });
        };
        let mut locked_tail = locked_tail;
        let segment = SegmentReader::open(dir, first, unread.is_empty(), &mut locked_tail)?;
        Ok(Self {
            dir: dir.clone(),
            unread,
            locked_tail,
            segment,
            position_in_segment: 0,
            crc: None,
            metadata: None,
            torn_tail: None,
            finished: false,
        })
    }

    /// The torn write at the end; known once the iterator is exhausted.
    #[must_use]
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn_tail.as_ref()
    }

    /// Offset in the last segment and checksum for the next record.
    pub(crate) fn end(&self) -> (u64, u32) {
        (self.segment.offset, self.crc.unwrap_or_default())
    }

    /// Size of the last segment's file.
    pub(crate) fn tail_file_bytes(&self) -> u64 {
        self.segment.file_bytes
    }

    /// The segment of the record last returned.
    pub(crate) fn file(&self) -> &Path {
        &self.segment.path
    }

    /// The next record and its offset in [`Self::file`].
    pub(crate) fn next_record(&mut self) -> Result<Option<(u64, Record)>, ReadError> {
        loop {
            let offset = self.segment.offset;
            match self.segment.next_frame()? {
                Frame::Record { header, data } => match self.check(header, data) {
                    Ok(record) => {
                        self.position_in_segment += 1;
                        return Ok(Some((offset, record)));
                    }
                    // If the record is torn, the next iteration ends the log here.
                    Err(damage) => self.segment.end_here_if_torn(offset, damage)?,
                },
                Frame::End => {
                    if self.position_in_segment < 2 {
                        return Err(self.segment.damaged(offset, Damage::SegmentHead));
                    }
                    let Some(next) = self.unread.pop() else {
                        self.torn_tail = self.segment.torn_tail()?;
                        return Ok(None);
                    };
                    let is_last = self.unread.is_empty();
                    self.segment =
                        SegmentReader::open(&self.dir, next, is_last, &mut self.locked_tail)?;
                    self.position_in_segment = 0;
                }
            }
        }
    }

    /// Checks a record against the checksum chain and its position, and decodes it.
    fn check(&mut self, header: RecordHeader, data: Bytes) -> Result<Record, Damage> {
        let computed = match (header.kind, self.crc) {
            // The chain starts with the first checksum record read.
            (RecordKind::Crc, None) => header.crc,
            (RecordKind::Crc, Some(crc)) => crc,
            (_, Some(crc)) => extend_crc(crc, &data),
            (_, None) => return Err(Damage::SegmentHead),
        };
        if computed != header.crc {
            return Err(Damage::Checksum {
                expected: header.crc,
                computed,
            });
        }
        let required = match self.position_in_segment {
            0 => Some(RecordKind::Crc),
            1 => Some(RecordKind::Metadata),
            _ => None,
        };
        if required.is_some_and(|kind| kind != header.kind) {
            return Err(Damage::SegmentHead);
        }
        let record = match header.kind {
            RecordKind::Crc if !data.is_empty() => None,
            RecordKind::Crc => Some(Record::Crc(header.crc)),
            RecordKind::Metadata => {
                if self.metadata.as_ref().is_some_and(|known| *known != data) {
                    return Err(Damage::ForeignMetadata);
                }
                self.metadata = Some(data.clone());
                Some(Record::Metadata(data))
            }
            RecordKind::Entry => payload::read_entry(&data).map(Record::Entry),
            RecordKind::State => payload::read_state(&data).map(Record::State),
            RecordKind::Snapshot => payload::read_snapshot(data).map(Record::Snapshot),
        };
        let record = record.ok_or(Damage::Malformed)?;
        self.crc = Some(computed);
        Ok(record)
    }
}

impl Iterator for Records {
    type Item = Result<LocatedRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let next = self.next_record().transpose();
        self.finished = !matches!(next, Some(Ok(_)));
        next.map(|found| {
            found.map(|(offset, record)| LocatedRecord {
                file: self.file().to_owned(),
                offset,
                record,
            })
        })
    }
}
