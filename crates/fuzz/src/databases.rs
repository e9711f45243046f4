//! Database files in bbolt's format: of a data directory that is taken over, of a snapshot that an
//! operator restores, and of one that a leader sends.

use std::io::Read;

use bytes::Bytes;
use portunus_bolt::{
    EntryValue, ReadError, Reader, STREAM_HEAD_BYTES, StreamError, StreamReader, check, snapshot,
};

use crate::input::take_byte;

/// The bytes of a meta before its checksum, and where it begins in a page.
const META_SUMMED_BYTES: usize = 56;
const META_AT: usize = 16;

/// Reads a database file in every way. The first byte is the page size; with its highest bit the
/// checksums of both metas are corrected first, so that changed metas are read.
pub fn databases(mut data: &[u8]) {
    let control = take_byte(&mut data);
    let mut file = data.to_vec();
    if control & 0x80 != 0 {
        let page_bytes = 1024 << (control & 3);
        correct_checksum(&mut file, META_AT);
        correct_checksum(&mut file, page_bytes + META_AT);
    }
    read(Bytes::from(file));
}

fn correct_checksum(file: &mut [u8], at: usize) {
    let Some(meta) = file.get_mut(at..at + META_SUMMED_BYTES + 8) else {
        return;
    };
    let (summed, checksum) = meta.split_at_mut(META_SUMMED_BYTES);
    let sum = summed.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    checksum.copy_from_slice(&sum.to_le_bytes());
}

fn read(file: Bytes) {
    let Ok(reader) = Reader::from_bytes(file) else {
        return;
    };
    let report = check(&reader);
    let _ = snapshot::status(&reader);
    let _ = snapshot::hash(&reader, snapshot::excluded_from_hash_rpc);
    let _ = reader.freelist().map(|list| list.map(Iterator::count));
    let _ = reader.bucket(b"key");
    let walked = walk(&reader);
    assert!(
        walked.is_ok() || !report.is_clean(),
        "the check finds what a walk finds"
    );
}

fn walk(reader: &Reader) -> Result<u64, ReadError> {
    let mut entries = 0;
    for bucket in reader.buckets() {
        let (_, bucket) = bucket?;
        let _ = bucket.get(&[0, 0, 0, 0, 0, 0, 0, 9]);
        let _ = bucket.iter_from(&[0, 0, 0, 0, 0, 0, 0, 7]).take(10).count();
        for entry in bucket.entries() {
            entries += 1;
            if let EntryValue::Bucket(inner) = entry?.value {
                let _ = inner.iter().count();
            }
        }
    }
    Ok(entries)
}

/// Reads a database that arrives in pieces, as from a leader. What is accepted as a stream has the
/// content of the file.
pub fn arriving_databases(mut data: &[u8]) {
    let control = take_byte(&mut data);
    let mut file = data.to_vec();
    if control & 0x80 != 0 {
        let page_bytes = 1024 << (control & 3);
        correct_checksum(&mut file, META_AT);
        correct_checksum(&mut file, page_bytes + META_AT);
    }
    let _ = snapshot::verify(file.as_slice(), file.len() as u64);
    let (head, rest) = file.split_at(STREAM_HEAD_BYTES.min(file.len()));
    let Ok(arriving) = StreamReader::new(head, InPieces(rest, usize::from(control) + 1)) else {
        return;
    };
    let mut received = Vec::new();
    let taken = arriving.read(|bucket, key, value| {
        received.push((bucket.to_vec(), key, value));
        Ok::<(), StreamError>(())
    });
    if taken.is_err() {
        return;
    }
    let reader = Reader::from_bytes(Bytes::from(file)).expect("an accepted stream is a database");
    let mut stored = Vec::new();
    for bucket in reader.buckets() {
        let (name, bucket) = bucket.expect("a bucket of an accepted stream");
        for pair in bucket.iter() {
            let (key, value) = pair.expect("an entry of an accepted stream");
            let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            stored.push((name.to_vec(), key, value));
        }
    }
    assert_eq!(received, stored);
}

/// Returns a few bytes at a time.
struct InPieces<'a>(&'a [u8], usize);

impl Read for InPieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.1.min(buffer.len());
        self.0.read(&mut buffer[..bytes])
    }
}
