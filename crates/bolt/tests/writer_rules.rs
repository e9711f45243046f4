//! Refusals of the writers, and failures of the target or the source.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::{self, Cursor, Write};

use portunus_bolt::{
    BulkOptions, FileWriter, KEY_BYTES_MAX, OpenError, OptionsError, Planner, Reader, StreamWriter,
    VALUE_BYTES_MAX, WriteError,
};
use support::*;

fn planner_in_bucket() -> Planner {
    let mut planner = Planner::new(BulkOptions::default());
    planner.bucket(b"b").unwrap();
    planner
}

#[test]
fn bucket_out_of_order_or_repeated_is_refused() {
    for (first, second) in [("b", "a"), ("b", "b"), ("authUsers", "auth")] {
        let mut planner = Planner::new(BulkOptions::default());
        planner.bucket(first.as_bytes()).unwrap();
        let error = planner.bucket(second.as_bytes()).unwrap_err();
        assert!(matches!(&error, WriteError::BucketOrder { name } if name == second.as_bytes()));
        assert_eq!(
            error.to_string(),
            format!("bucket {second:?} does not come after the bucket before it")
        );
    }
}

#[test]
fn key_out_of_order_or_repeated_is_refused() {
    for (first, second) in [("b", "a"), ("b", "b"), ("bb", "b")] {
        let mut writer = FileWriter::new(BulkOptions::default(), Cursor::new(Vec::new())).unwrap();
        writer.bucket(b"b").unwrap();
        writer.entry(first.as_bytes(), b"").unwrap();
        let error = writer.entry(second.as_bytes(), b"").unwrap_err();
        assert!(matches!(error, WriteError::KeyOrder { .. }));
    }
}

#[test]
fn key_order_is_per_bucket() {
    let mut planner = planner_in_bucket();
    planner.entry(b"z", 1).unwrap();
    planner.bucket(b"c").unwrap();
    planner.entry(b"a", 1).unwrap();
}

#[test]
fn keys_and_names_must_have_1_to_32768_bytes() {
    let mut planner = planner_in_bucket();
    for bytes in [0, KEY_BYTES_MAX + 1] {
        let key = vec![b'z'; bytes];
        assert!(matches!(
            planner.entry(&key, 1),
            Err(WriteError::KeyLength { bytes: found }) if found == bytes
        ));
        assert!(matches!(
            planner.bucket(&key),
            Err(WriteError::KeyLength { bytes: found }) if found == bytes
        ));
    }
    planner.entry(&vec![b'z'; KEY_BYTES_MAX], 1).unwrap();
}

#[test]
fn value_of_2_gib_is_refused() {
    let mut planner = planner_in_bucket();
    assert!(matches!(
        planner.entry(b"k", VALUE_BYTES_MAX + 1),
        Err(WriteError::ValueLength { .. })
    ));
    planner.entry(b"k", VALUE_BYTES_MAX).unwrap();
    let layout = planner.finish().unwrap();
    // Header, element, key and value fill 524289 pages; two metas and the top level follow.
    assert_eq!(layout.file_bytes(), (524_289 + 3) * 4096);
}

#[test]
fn refused_entry_leaves_the_writer_usable() {
    let mut planner = planner_in_bucket();
    planner.entry(b"k", 5).unwrap();
    planner.entry(b"a", 5).unwrap_err();
    planner.entry(b"l", 5).unwrap();
    assert_eq!(planner.finish().unwrap().entries(), 2);
}

#[test]
fn entry_before_any_bucket_is_refused() {
    let mut planner = Planner::new(BulkOptions::default());
    assert!(matches!(planner.entry(b"k", 1), Err(WriteError::NoBucket)));
}

#[test]
fn page_size_must_be_a_power_of_two() {
    for page_bytes in [0, 512, 1000, 4097, 1 << 25] {
        assert_eq!(
            BulkOptions::with_page_bytes(page_bytes),
            Err(OptionsError::PageBytes { page_bytes })
        );
    }
}

/// Streams `written` against the plan of `planned`.
fn stream_other(planned: &Contents, written: &Contents) -> Result<Vec<u8>, WriteError> {
    let mut writer = StreamWriter::new(plan(planned, pages_of(4096)), Vec::new())?;
    for (name, entries) in written {
        writer.bucket(name)?;
        for (key, value) in entries {
            writer.entry(key, value)?;
        }
    }
    writer.finish()
}

#[test]
fn source_that_changed_between_the_passes_is_an_error() {
    let planned = numbered(1_000, 50);
    stream_other(&planned, &planned).unwrap();
    for written in [
        numbered(999, 50),
        numbered(1_001, 50),
        numbered(5_000, 50),
        numbered(1_000, 60),
        numbered(1_000, 500),
        numbered(0, 0),
    ] {
        assert!(matches!(
            stream_other(&planned, &written),
            Err(WriteError::SourceChanged)
        ));
    }
}

#[test]
fn stream_never_exceeds_the_planned_size() {
    struct Counted(u64);
    impl Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len() as u64).unwrap();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let layout = plan(&numbered(10, 10), pages_of(4096));
    let mut writer = StreamWriter::new(layout.clone(), Counted(layout.file_bytes())).unwrap();
    writer.bucket(b"b").unwrap();
    let error = (0_u64..1_000_000)
        .find_map(|n| writer.entry(&n.to_be_bytes(), &[0; 2_000]).err())
        .unwrap();
    assert!(matches!(error, WriteError::SourceChanged));
    assert!(matches!(
        writer.entry(&[0xFF; 9], b""),
        Err(WriteError::FailedBefore)
    ));
}

/// A target that accepts `room` bytes and then fails like a full disk.
struct FullDisk {
    room: usize,
}

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn writer_refuses_all_calls_after_a_failed_write() {
    let contents = numbered(40_000, 50);
    let layout = plan(&contents, pages_of(4096));
    let mut writer = StreamWriter::new(layout, FullDisk { room: 1 << 20 }).unwrap();
    writer.bucket(b"b").unwrap();
    let mut entries = contents[&b"b"[..]].iter();
    let error = entries
        .find_map(|(key, value)| writer.entry(key, value).err())
        .unwrap();
    assert!(matches!(error, WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull));
    let (key, value) = entries.next().unwrap();
    assert!(matches!(
        writer.entry(key, value),
        Err(WriteError::FailedBefore)
    ));
    assert!(matches!(writer.finish(), Err(WriteError::FailedBefore)));
}

#[test]
fn unfinished_file_does_not_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = FileWriter::new(BulkOptions::default(), file).unwrap();
    writer.bucket(b"b").unwrap();
    for n in 0_u64..100_000 {
        writer.entry(&n.to_be_bytes(), b"value").unwrap();
    }
    drop(writer);
    assert!(path.metadata().unwrap().len() > 1 << 20);
    assert!(matches!(Reader::open(&path), Err(OpenError::NoMeta { .. })));
}

#[test]
fn finished_file_is_positioned_at_its_end() {
    let contents = numbered(100, 100);
    let mut writer = FileWriter::new(BulkOptions::default(), Cursor::new(Vec::new())).unwrap();
    writer.bucket(b"b").unwrap();
    for (key, value) in &contents[&b"b"[..]] {
        writer.entry(key, value).unwrap();
    }
    let (out, layout) = writer.finish().unwrap();
    assert_eq!(out.position(), layout.file_bytes());
    assert_eq!(out.into_inner().len() as u64, layout.file_bytes());
    assert_eq!(layout.entries(), 100);
}
