//! Segments of the write-ahead log, on a disk in memory.

mod memory_disk;

use std::path::Path;
use std::sync::Arc;

use portunus_wal::{LogDir, SnapshotPoint, WalOptions, read_records, valid_snapshots};
use prost::encoding::encode_varint;

use crate::input::{take_byte, take_part};
use memory_disk::MemoryDisk;

const DIR: &str = "/wal";
/// The size of segments here.
const SEGMENT_BYTES: u64 = 4096;

/// Reads a directory of segments in every way, and opens it for writing.
fn open(segments: Vec<(String, Vec<u8>)>) {
    let dir = |segments: &[(String, Vec<u8>)]| {
        let disk = MemoryDisk::with_files(Path::new(DIR), segments.iter().cloned());
        LogDir::on(Arc::new(disk), Path::new(DIR))
    };
    let log = dir(&segments);
    let mut is_damaged = false;
    if let Ok(read) = read_records(&log) {
        is_damaged = read.into_iter().any(|record| record.is_err());
    }
    let snapshots = valid_snapshots(&log).unwrap_or_default();
    let mut points = vec![SnapshotPoint::default()];
    points.extend(snapshots.iter().map(|snapshot| SnapshotPoint {
        index: snapshot.index,
        term: snapshot.term,
    }));
    points.truncate(4);
    for point in points {
        let log = dir(&segments);
        let options = WalOptions {
            segment_bytes: SEGMENT_BYTES,
        };
        let Ok((wal, recovered)) = options.open(&log, point) else {
            continue;
        };
        let last = recovered
            .entries
            .last()
            .map_or(point.index, |entry| entry.index);
        // Not equal: the log may also have entries that a snapshot of the leader replaced.
        assert!(wal.last_index() >= last);
        drop(wal);
        // What was repaired is not damaged any more.
        if !is_damaged {
            let again = options.open(&log, point);
            let (_, again) = again.expect("a repaired log");
            assert_eq!(again.entries, recovered.entries);
            assert!(again.torn_tail.is_none());
        }
    }
}

fn name(sequence: u64, first_index: u64) -> String {
    format!("{sequence:016x}-{first_index:016x}.wal")
}

/// Opens a directory with one segment of any content.
pub fn log_segments(data: &[u8]) {
    open(vec![(name(0, 0), data.to_vec())]);
}

/// Opens a directory of segments whose records have valid lengths and checksums.
///
/// A record is a byte with its type, and a part with its data; type 0 begins a segment, whose
/// first index is the next byte.
pub fn log_records(mut data: &[u8]) {
    let mut segments = vec![(name(0, 0), Vec::new())];
    let mut crc = 0;
    while !data.is_empty() && segments.len() < 4 {
        let kind = take_byte(&mut data);
        if kind == 0 {
            let first_index = u64::from(take_byte(&mut data));
            segments.push((name(segments.len() as u64, first_index), Vec::new()));
            continue;
        }
        let kind = kind % 8;
        let content = take_part(&mut data);
        // A checksum record has the checksum of everything before it, and no data.
        let is_crc = kind == 4;
        if !is_crc {
            crc = crc32c::crc32c_append(crc, content);
        }
        let mut record = vec![1 << 3, kind, 2 << 3];
        encode_varint(u64::from(crc), &mut record);
        if !is_crc {
            record.push(3 << 3 | 2);
            encode_varint(content.len() as u64, &mut record);
            record.extend_from_slice(content);
        }
        if let Some((_, segment)) = segments.last_mut() {
            append(segment, &record);
        }
    }
    open(segments);
}

/// Appends a record with its length field and padding.
fn append(segment: &mut Vec<u8>, record: &[u8]) {
    let padding = (8 - record.len() % 8) % 8;
    let top = match padding {
        0 => 0,
        padding => 0x80 | padding as u64,
    };
    segment.extend_from_slice(&(record.len() as u64 | top << 56).to_le_bytes());
    segment.extend_from_slice(record);
    segment.resize(segment.len() + padding, 0);
}
