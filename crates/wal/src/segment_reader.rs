//! Reads the frames of one segment in order.
//!
//! Finds the end of the segment and, in the last one, a torn write there.
//! Checks frames only; `reader` checks the checksum chain.

use std::{io, path::PathBuf};

use bytes::{Buf, Bytes};

use crate::{
    disk::{DiskFile, LogDir},
    errors::{Damage, ReadError},
    frame::{FrameSize, LENGTH_FIELD_BYTES},
    record::{HeaderFault, RecordHeader},
    segment_name::SegmentName,
    torn::{all_zero, is_torn, sector_end},
};

/// Bytes read at once. Entries share the memory of their chunk.
const CHUNK_BYTES: u64 = 1 << 20;

/// A torn write at the end of the log. It was never acknowledged, since it was never synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The last segment.
    pub file: PathBuf,
    /// End of the log.
    pub offset: u64,
    /// Bytes of the torn write after that offset.
    pub bytes: u64,
}

/// The content at the current offset of a segment.
pub(crate) enum Frame {
    Record {
        header: RecordHeader,
        data: Bytes,
    },
    /// No further record in this segment.
    End,
}

/// One segment, read in chunks.
pub(crate) struct SegmentReader {
    pub(crate) path: PathBuf,
    file: Box<dyn DiskFile>,
    pub(crate) file_bytes: u64,
    is_last: bool,
    /// Start of the frame that `next_frame` reads; after a torn frame, its start.
    pub(crate) offset: u64,
    /// File content from `offset` on, as far as it has been read.
    chunk: Bytes,
    /// The last returned frame and its size, until it is verified.
    unverified: Option<(Bytes, FrameSize)>,
    torn: bool,
}

impl SegmentReader {
    pub(crate) fn open(
        dir: &LogDir,
        name: SegmentName,
        is_last: bool,
        locked_tail: &mut Option<Box<dyn DiskFile>>,
    ) -> Result<Self, ReadError> {
        let path = name.path_in(&dir.path);
        let tail = if is_last { locked_tail.take() } else { None };
        let open = || {
            let file = match tail {
                Some(file) => file,
                None => dir.disk.open(&path)?,
            };
            let file_bytes = file.file_bytes()?;
            Ok((file, file_bytes))
        };
        let (file, file_bytes) = open().map_err(ReadError::io(&path))?;
        Ok(Self {
            path,
            file,
            file_bytes,
            is_last,
            offset: 0,
            chunk: Bytes::new(),
            unverified: None,
            torn: false,
        })
    }

    pub(crate) fn damaged(&self, offset: u64, damage: Damage) -> ReadError {
        ReadError::Damaged {
            file: self.path.clone(),
            offset,
            damage,
        }
    }

    fn remaining_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(self.offset)
    }

    /// Reads at least `bytes` of the file from `offset` on into the chunk, or up to its end.
    fn fill(&mut self, bytes: u64) -> Result<(), ReadError> {
        let wanted = bytes.min(self.remaining_bytes());
        let held = self.chunk.len() as u64;
        if held >= wanted {
            return Ok(());
        }
        let read_bytes = (wanted - held).max(CHUNK_BYTES.saturating_sub(held));
        let read_bytes = read_bytes.min(self.remaining_bytes() - held);
        let mut next = vec![0; (held + read_bytes) as usize];
        let (old, new) = next.split_at_mut(held as usize);
        old.copy_from_slice(&self.chunk);
        let got = self.read_at(new, self.offset + held)?;
        if got < new.len() {
            // The file shrank during the read; use its new end.
            next.truncate(held as usize + got);
            self.file_bytes = self.offset + next.len() as u64;
        }
        self.chunk = next.into();
        Ok(())
    }

    /// Reads until the buffer is full or the file ends.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self
                .file
                .read_at(&mut buffer[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::io(&self.path)(error)),
            }
        }
        Ok(filled)
    }

    /// Returns the record at `offset` and moves `offset` behind it.
    pub(crate) fn next_frame(&mut self) -> Result<Frame, ReadError> {
        self.unverified = None;
        if self.torn {
            return Ok(Frame::End);
        }
        self.fill(LENGTH_FIELD_BYTES as u64)?;
        let start = self.offset;
        let Some(field) = self.chunk.first_chunk::<LENGTH_FIELD_BYTES>() else {
            if self.is_last || self.chunk.is_empty() {
                return Ok(Frame::End);
            }
            return Err(self.damaged(start, Damage::CutShort));
        };
        let field = u64::from_le_bytes(*field);
        if field == 0 {
            self.check_nothing_follows()?;
            return Ok(Frame::End);
        }
        let Some(size) = FrameSize::from_field(field) else {
            return Err(self.damaged(start, Damage::BadLength));
        };
        let frame_bytes = size.padded_bytes() + LENGTH_FIELD_BYTES as u64;
        if frame_bytes > self.remaining_bytes() {
            return self.classify_overlong(size);
        }
        self.fill(frame_bytes)?;
        if (self.chunk.len() as u64) < frame_bytes {
            return self.classify_overlong(size);
        }

        self.chunk.advance(LENGTH_FIELD_BYTES);
        let stored = self.chunk.split_to(size.padded_bytes() as usize);
        self.offset += frame_bytes;
        self.unverified = Some((stored.clone(), size));

        let record = stored.slice(..size.record_bytes as usize);
        let header = match RecordHeader::parse(&record, size.record_bytes) {
            Ok(header) => header,
            Err(HeaderFault::CutShort | HeaderFault::Malformed) => {
                self.end_here_if_torn(start, Damage::Malformed)?;
                return Ok(Frame::End);
            }
        };
        if !all_zero(&stored[size.record_bytes as usize..]) {
            return Err(self.damaged(start, Damage::Padding));
        }
        let data = record.slice(header.data_start..);
        Ok(Frame::Record { header, data })
    }

    /// Classifies a frame that ends behind the file: a torn append, or a wrong length.
    fn classify_overlong(&mut self, size: FrameSize) -> Result<Frame, ReadError> {
        let start = self.offset;
        if !self.is_last {
            return Err(self.damaged(start, Damage::CutShort));
        }
        self.fill(u64::MAX)?;
        let stored = &self.chunk[LENGTH_FIELD_BYTES.min(self.chunk.len())..];
        let stored_at = start + LENGTH_FIELD_BYTES as u64;
        if !is_torn(stored, stored_at, size.record_bytes, true) {
            return Err(self.damaged(start, Damage::BadLength));
        }
        self.torn = true;
        Ok(Frame::End)
    }

    /// Classifies the last returned frame, which failed a check. If it is torn,
    /// the log ends in front of it; otherwise returns the damage.
    pub(crate) fn end_here_if_torn(&mut self, start: u64, damage: Damage) -> Result<(), ReadError> {
        // Other damage was found in bytes whose checksum is correct.
        let could_be_torn = matches!(damage, Damage::Malformed | Damage::Checksum { .. });
        let torn = match &self.unverified {
            Some((stored, size)) if self.is_last && could_be_torn => is_torn(
                stored,
                start + LENGTH_FIELD_BYTES as u64,
                size.record_bytes,
                false,
            ),
            _ => false,
        };
        if !torn {
            return Err(self.damaged(start, damage));
        }
        self.offset = start;
        self.torn = true;
        Ok(())
    }

    /// Checks that a zero length field ends the log. Other bytes in the same
    /// sector show that a record was there: a sector is written completely or
    /// not at all.
    fn check_nothing_follows(&mut self) -> Result<(), ReadError> {
        let sector_rest = sector_end(self.offset) - self.offset;
        self.fill(sector_rest)?;
        let sector_rest = self.chunk.len().min(sector_rest as usize);
        if all_zero(&self.chunk[..sector_rest]) {
            Ok(())
        } else {
            Err(self.damaged(self.offset, Damage::ErasedLength))
        }
    }

    /// Returns the torn write behind the end of the log, if any.
    pub(crate) fn torn_tail(&self) -> Result<Option<TornTail>, ReadError> {
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let (mut position, mut written_end) = (self.offset, self.offset);
        loop {
            let count = self.read_at(&mut buffer, position)?;
            if count == 0 {
                break;
            }
            let read = &buffer[..count];
            if !all_zero(read) {
                let last = read.iter().rposition(|byte| *byte != 0).unwrap_or_default();
                written_end = position + last as u64 + 1;
            }
            position += count as u64;
        }
        let bytes = written_end - self.offset;
        Ok((bytes > 0).then(|| TornTail {
            file: self.path.clone(),
            offset: self.offset,
            bytes,
        }))
    }
}
