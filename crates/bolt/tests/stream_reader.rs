//! The stream reader: the entries it returns, and its refusal of damaged streams.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::{self, Read};

use bytes::Bytes;
use portunus_bolt::{BulkOptions, STREAM_HEAD_BYTES, StreamError, StreamReader};
use proptest::prelude::*;
use support::*;

fn stream_of(contents: &Contents) -> Vec<u8> {
    write_stream(contents, BulkOptions::for_stream_reader())
}

/// A source that returns a few bytes at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = buffer.len().min(1000);
        self.0.read(&mut buffer[..bytes])
    }
}

/// Reads a file as a stream; `None` if it is not one.
fn read_stream(file: &[u8]) -> Option<Result<Contents, StreamError>> {
    let (head, rest) = file.split_at(file.len().min(STREAM_HEAD_BYTES));
    let reader = StreamReader::new(head, Trickle(rest)).ok()?;
    let mut contents = Contents::new();
    let read = reader.read(|bucket, key: Bytes, value: Bytes| {
        let bucket = contents.entry(bucket.to_vec()).or_default();
        bucket.insert(key.to_vec(), value.to_vec());
        Ok::<_, StreamError>(())
    });
    Some(read.map(|()| contents))
}

/// Small and large values, a tree of three levels, empty buckets and one with a single leaf.
fn varied() -> Contents {
    let mut contents: Contents = ETCD_BUCKETS
        .iter()
        .map(|name| (name.as_bytes().to_vec(), Default::default()))
        .collect();
    let many = (0..8_000_u64).map(|n| {
        let value_bytes = if n % 997 == 0 { 9000 } else { 10 };
        (n.to_be_bytes().to_vec(), vec![n as u8; value_bytes])
    });
    contents.insert(b"key".to_vec(), many.collect());
    let few = [(b"consistent_index".to_vec(), vec![7; 8])];
    contents.insert(b"meta".to_vec(), few.into());
    contents
}

fn without_empty(mut contents: Contents) -> Contents {
    contents.retain(|_, entries| !entries.is_empty());
    contents
}

#[test]
fn stream_reader_returns_the_written_entries() {
    for contents in [
        varied(),
        numbered(0, 0),
        numbered(1, 1),
        numbered(500, 32_000),
        numbered(305, 3647),
        numbered(30_000, 3),
        Contents::new(),
    ] {
        let file = stream_of(&contents);
        let read = read_stream(&file).unwrap().unwrap();
        assert_eq!(read, without_empty(contents.clone()));
        let reader = open(file);
        assert_eq!(read_all(&reader), contents);
        assert!(portunus_bolt::check(&reader).problems.is_empty());
    }
}

#[test]
fn file_without_directory_or_changed_later_is_not_read_as_a_stream() {
    let contents = varied();
    assert!(read_stream(&write_stream(&contents, BulkOptions::default())).is_none());
    assert!(read_stream(&write_seekable(&contents, BulkOptions::for_stream_reader())).is_none());
    let file = stream_of(&contents);
    for cut in [0, 1, 80, 4096, 8191] {
        assert!(read_stream(&file[..cut]).is_none(), "{cut}");
    }
    for meta_byte in (16..28).chain(32..80).step_by(5) {
        for page in [0, 4096] {
            let mut changed = file.clone();
            changed[page + meta_byte] ^= 1;
            assert!(read_stream(&changed).is_none(), "{page} {meta_byte}");
        }
    }
}

#[test]
fn stream_that_ends_early_or_late_is_refused() {
    let file = stream_of(&varied());
    for cut in (8192..file.len()).step_by(30_011).chain([file.len() - 1]) {
        let read = read_stream(&file[..cut]).unwrap();
        assert!(matches!(read, Err(StreamError::Io(_))), "{cut}: {read:?}");
    }
    let longer = [&file[..], &[0]].concat();
    let read = read_stream(&longer).unwrap();
    assert!(matches!(read, Err(StreamError::TooLong)), "{read:?}");
}

#[test]
fn stream_with_swapped_pages_is_refused() {
    let file = stream_of(&varied());
    let pages = file.len() / 4096;
    for first in (2..pages - 1).step_by(31) {
        let mut swapped = file.clone();
        let (before, after) = swapped.split_at_mut((first + 1) * 4096);
        before[first * 4096..].swap_with_slice(&mut after[..4096]);
        if swapped != file {
            // Overflow pages are plain bytes of a value: moving them is not detectable.
            let is_overflow = |page: usize| {
                let id = page as u64;
                file[page * 4096..][..8] != id.to_le_bytes()
            };
            let accepted = read_stream(&swapped).unwrap().is_ok();
            assert!(!accepted || is_overflow(first) && is_overflow(first + 1));
        }
    }
}

#[test]
fn stream_with_a_changed_page_header_is_refused() {
    let file = stream_of(&varied());
    let pages = file.len() / 4096;
    for page in (2..8).chain(pages - 8..pages) {
        if file[page * 4096..][..8] != (page as u64).to_le_bytes() {
            continue;
        }
        for at in 0..16 {
            let mut damaged = file.clone();
            damaged[page * 4096 + at] ^= 0x11;
            let read = read_stream(&damaged).unwrap();
            assert!(read.is_err(), "page {page} byte {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The stream reader and the file reader return the same entries.
    #[test]
    fn accepted_stream_equals_the_content_of_the_file(
        count in 0_u64..3000,
        value_bytes in 0_usize..6000,
        damage in proptest::option::of((any::<prop::sample::Index>(), 1_u8..)),
    ) {
        let count = count.min(4_000_000 / (value_bytes as u64 + 1));
        let mut file = stream_of(&numbered(count, value_bytes));
        if let Some((place, bits)) = damage {
            let place = place.index(file.len());
            file[place] ^= bits;
        }
        if let Some(Ok(read)) = read_stream(&file) {
            prop_assert_eq!(read, without_empty(read_all(&open(file))));
        } else {
            prop_assert!(damage.is_some());
        }
    }
}
