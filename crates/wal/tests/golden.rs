//! Compares the bytes on disk with a commented hex file. Go etcd 3.6 writes the
//! same bytes for the same calls.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;

use portunus_proto::{
    raftpb::{ConfState, Entry, HardState},
    walpb::Snapshot,
};
use portunus_wal::{Record, SnapshotPoint};
use support::{METADATA, OPTIONS, SEGMENT_BYTES, START, Scratch, entry, records, segments_in};

/// Hex digits of a testdata file, without spaces and comments.
fn golden_bytes(text: &str) -> Vec<u8> {
    let digits: String = text
        .lines()
        .flat_map(|line| line.split('#').next())
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .collect();
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn golden() -> Vec<u8> {
    golden_bytes(include_str!("../testdata/small.hex"))
}

fn conf_change() -> Entry {
    Entry {
        r#type: 1,
        ..entry(1, 1, &b"member"[..])
    }
}

fn conf_state() -> ConfState {
    ConfState {
        voters: vec![1, 300],
        learners: vec![7],
        ..Default::default()
    }
}

fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

#[test]
fn small_log_equals_the_golden_bytes() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    wal.save(Some(&hard_state(1, 1, 0)), &[conf_change()], true)
        .unwrap();
    let entries = [entry(2, 2, &b""[..]), entry(2, 3, &b"hello, world"[..])];
    wal.save(Some(&hard_state(2, 300, 1)), &entries, true)
        .unwrap();
    wal.save_snapshot(&Snapshot {
        index: 2,
        term: 2,
        conf_state: Some(conf_state()),
    })
    .unwrap();
    wal.save(Some(&hard_state(2, 300, 3)), &[], true).unwrap();

    let (path, content) = scratch.tail();
    assert_eq!(
        path.file_name().unwrap(),
        "0000000000000000-0000000000000000.wal"
    );
    let (written, rest) = content.split_at(golden().len());
    assert_eq!(written, golden());
    assert!(rest.iter().all(|byte| *byte == 0));
    assert_eq!(content.len() as u64, SEGMENT_BYTES);
}

#[test]
fn golden_bytes_read_back_as_the_written_records() {
    let scratch = Scratch::new();
    fs::create_dir(&scratch.dir).unwrap();
    fs::write(
        scratch.dir.join("0000000000000000-0000000000000000.wal"),
        golden(),
    )
    .unwrap();
    let found: Vec<_> = records(&scratch.dir).into_iter().map(|(_, r)| r).collect();
    let marked = Snapshot {
        index: 2,
        term: 2,
        conf_state: Some(conf_state()),
    };
    assert_eq!(
        found,
        [
            Record::Crc(0),
            Record::Metadata(METADATA.into()),
            Record::Snapshot(Snapshot::default()),
            Record::Entry(conf_change()),
            Record::State(hard_state(1, 1, 0)),
            Record::Entry(entry(2, 2, &b""[..])),
            Record::Entry(entry(2, 3, &b"hello, world"[..])),
            Record::State(hard_state(2, 300, 1)),
            Record::Snapshot(marked.clone()),
            Record::State(hard_state(2, 300, 3)),
        ]
    );

    let (_, recovered) = OPTIONS
        .open(&scratch.dir, SnapshotPoint { index: 2, term: 2 })
        .unwrap();
    assert_eq!(recovered.metadata, METADATA);
    assert_eq!(recovered.snapshot, marked);
    assert_eq!(recovered.hard_state, hard_state(2, 300, 3));
    assert_eq!(recovered.entries, [entry(2, 3, &b"hello, world"[..])]);
    assert_eq!(recovered.torn_tail, None);
}

#[test]
fn next_segment_starts_with_checksum_metadata_and_state() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    let filler = entry(1, 1, vec![1; SEGMENT_BYTES as usize]);
    wal.save(Some(&hard_state(1, 1, 0)), &[filler], true)
        .unwrap();
    let segments = segments_in(&scratch.dir);
    assert_eq!(
        segments[1].file_name().unwrap(),
        "0000000000000001-0000000000000002.wal"
    );
    let in_first = records(&scratch.dir).len() - 3;
    let heads: Vec<_> = records(&scratch.dir).split_off(in_first);
    let kinds: Vec<_> = heads.iter().map(|(_, record)| record.clone()).collect();
    assert!(matches!(kinds[0], Record::Crc(crc) if crc != 0));
    assert_eq!(kinds[1], Record::Metadata(METADATA.into()));
    assert_eq!(kinds[2], Record::State(hard_state(1, 1, 0)));
    drop(wal);
    let (_, recovered) = OPTIONS.open(&scratch.dir, START).unwrap();
    assert_eq!(recovered.entries.len(), 1);
}
