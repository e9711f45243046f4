//! Encoding and parsing of records.
//!
//! A record is the protobuf message `walpb.Record`, but written and parsed by
//! hand: the checksum comes before the data it covers, and a save copies an
//! entry's payload only once, into the write buffer.

use bytes::Bytes;
use portunus_proto::{
    raftpb::{Entry, HardState},
    walpb::Snapshot,
};

use crate::{frame::FrameSize, payload};

/// Extends the checksum chain, which covers the data of all records across segments.
pub(crate) fn extend_crc(crc: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, data)
}

/// One record, decoded.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Identifies the member that writes the log; second in every segment.
    Metadata(Bytes),
    /// A raft entry. A later entry with the same index replaces it and all after it.
    Entry(Entry),
    /// A raft hard state; the last one is valid.
    State(HardState),
    /// The checksum of everything before; first in every segment.
    Crc(u32),
    /// A snapshot that covers the log up to its index.
    Snapshot(Snapshot),
}

/// The `type` field of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Metadata = 1,
    Entry = 2,
    State = 3,
    Crc = 4,
    Snapshot = 5,
}

impl RecordKind {
    fn from_wire(kind: u64) -> Option<Self> {
        Some(match kind {
            1 => Self::Metadata,
            2 => Self::Entry,
            3 => Self::State,
            4 => Self::Crc,
            5 => Self::Snapshot,
            _ => return None,
        })
    }
}

const TAG_KIND: u8 = 1 << 3;
const TAG_CRC: u8 = 2 << 3;
const TAG_DATA: u8 = 3 << 3 | 2;

/// The part of a record before its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) crc: u32,
    /// Offset of the data, which extends to the end of the record.
    pub(crate) data_start: usize,
}

/// An error of parsing a record header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// The given bytes end before the header does.
    CutShort,
    /// No writer produces these bytes, or they contradict the length field.
    Malformed,
}

impl RecordHeader {
    /// Parses the header of a record of `record_bytes` bytes from its first
    /// bytes. Checks that data length and record length agree.
    pub(crate) fn parse(front: &[u8], record_bytes: u64) -> Result<Self, HeaderFault> {
        let mut reader = VarintReader::new(front);
        reader.tag(TAG_KIND)?;
        let kind = RecordKind::from_wire(reader.varint()?).ok_or(HeaderFault::Malformed)?;
        reader.tag(TAG_CRC)?;
        let crc = u32::try_from(reader.varint()?).map_err(|_| HeaderFault::Malformed)?;
        let mut data_bytes = 0;
        if reader.position as u64 != record_bytes {
            reader.tag(TAG_DATA)?;
            data_bytes = reader.varint()?;
        }
        if (reader.position as u64).checked_add(data_bytes) != Some(record_bytes) {
            return Err(HeaderFault::Malformed);
        }
        Ok(Self {
            kind,
            crc,
            data_start: reader.position,
        })
    }
}

/// Reads tags and varints off the front of a slice.
pub(crate) struct VarintReader<'a> {
    bytes: &'a [u8],
    pub(crate) position: usize,
}

impl<'a> VarintReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn at_end(&self) -> bool {
        self.position == self.bytes.len()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, HeaderFault> {
        let byte = *self.bytes.get(self.position).ok_or(HeaderFault::CutShort)?;
        self.position += 1;
        Ok(byte)
    }

    fn tag(&mut self, expected: u8) -> Result<(), HeaderFault> {
        if self.byte()? == expected {
            Ok(())
        } else {
            Err(HeaderFault::Malformed)
        }
    }

    pub(crate) fn varint(&mut self) -> Result<u64, HeaderFault> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(HeaderFault::Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HeaderFault::Malformed)
    }
}

/// Appends a varint.
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Collects the frames of one batch and carries the checksum chain.
#[derive(Debug)]
pub(crate) struct BatchEncoder {
    buffer: Vec<u8>,
    crc: u32,
    /// First part of a record's data, before an entry's payload. Reused.
    front: Vec<u8>,
}

/// Buffer capacity kept after a batch.
const BUFFER_BYTES_KEPT: usize = 8 << 20;

impl BatchEncoder {
    pub(crate) fn continuing(crc: u32) -> Self {
        Self {
            buffer: Vec::new(),
            crc,
            front: Vec::new(),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub(crate) fn clear(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
    }

    /// Encodes the head of a segment: checksum and metadata.
    pub(crate) fn segment_head(&mut self, metadata: &[u8]) {
        self.frame(RecordKind::Crc, &[]);
        self.frame(RecordKind::Metadata, metadata);
    }

    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.front.clear();
        payload::put_entry_front(entry, &mut self.front);
        self.frame(RecordKind::Entry, &entry.data);
    }

    pub(crate) fn state(&mut self, state: &HardState) {
        self.front.clear();
        payload::put_state(state, &mut self.front);
        self.frame(RecordKind::State, &[]);
    }

    pub(crate) fn snapshot(&mut self, snapshot: &Snapshot) {
        self.front.clear();
        payload::put_snapshot(snapshot, &mut self.front);
        self.frame(RecordKind::Snapshot, &[]);
    }

    /// Appends one framed record whose data is `self.front` and then `rest`.
    fn frame(&mut self, kind: RecordKind, rest: &[u8]) {
        self.crc = extend_crc(extend_crc(self.crc, &self.front), rest);
        let data_bytes = self.front.len() + rest.len();

        // The length field comes first but depends on the header: fill it in after.
        let frame_start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer
            .extend_from_slice(&[TAG_KIND, kind as u8, TAG_CRC]);
        put_varint(self.crc.into(), &mut self.buffer);
        if data_bytes > 0 {
            self.buffer.push(TAG_DATA);
            put_varint(data_bytes as u64, &mut self.buffer);
            self.buffer.extend_from_slice(&self.front);
            self.buffer.extend_from_slice(rest);
        }
        let record_start = frame_start + 8;
        let size = FrameSize::of_record((self.buffer.len() - record_start) as u64);
        self.buffer
            .resize(self.buffer.len() + size.pad_bytes as usize, 0);
        self.buffer[frame_start..record_start].copy_from_slice(&size.to_field().to_le_bytes());
        self.front.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_that_contradicts_the_length_field_is_malformed() {
        let record = [8, 2, 16, 7, 26, 2, 0xaa, 0xbb];
        let header = RecordHeader::parse(&record, 8).unwrap();
        assert_eq!((header.kind, header.crc), (RecordKind::Entry, 7));
        assert_eq!(header.data_start, 6);
        for wrong in [5, 7, 9, 16, 1 << 40] {
            assert_eq!(
                RecordHeader::parse(&record, wrong),
                Err(HeaderFault::Malformed),
                "{wrong}"
            );
        }
    }

    #[test]
    fn truncated_header_is_reported_as_cut_short() {
        let record = [8, 2, 16, 0x80, 0x01, 26, 2, 0xaa, 0xbb];
        for cut in 0..7 {
            assert_eq!(
                RecordHeader::parse(&record[..cut], 9),
                Err(HeaderFault::CutShort),
                "{cut}"
            );
        }
        assert!(
            RecordHeader::parse(&record[..7], 9).is_ok(),
            "data may be cut"
        );
    }

    #[test]
    fn varints_of_every_length_round_trip() {
        for shift in 0..64 {
            let value = u64::MAX >> shift;
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            assert_eq!(VarintReader::new(&bytes).varint(), Ok(value));
        }
        let too_long = [0xff; 11];
        assert_eq!(
            VarintReader::new(&too_long).varint(),
            Err(HeaderFault::Malformed)
        );
    }
}
