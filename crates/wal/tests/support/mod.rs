//! Helpers of the log tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use portunus_proto::{
    raftpb::{ConfState, Entry, HardState},
    walpb::Snapshot,
};
use portunus_wal::{Record, SnapshotPoint, Wal, WalOptions, read_records};
use tempfile::TempDir;

/// A realistic member id: ids are hashes.
pub const VOTE: u64 = 0x8e9e_05c5_2164_694d;

pub const METADATA: &[u8] = &[8, 1, 16, 2];

pub const SEGMENT_BYTES: u64 = 16_384;

pub const OPTIONS: WalOptions = WalOptions {
    segment_bytes: SEGMENT_BYTES,
};

pub fn entry(term: u64, index: u64, data: impl Into<Bytes>) -> Entry {
    Entry {
        term,
        index,
        data: data.into(),
        ..Default::default()
    }
}

/// Payload without zero bytes, different for each seed.
pub fn payload(seed: u64, bytes: usize) -> Bytes {
    (0..bytes as u64)
        .map(|i| (seed.wrapping_mul(31).wrapping_add(i * 7) % 255 + 1) as u8)
        .collect()
}

pub fn state(term: u64, commit: u64) -> HardState {
    HardState {
        term,
        vote: VOTE,
        commit,
    }
}

pub fn snapshot(index: u64, term: u64) -> Snapshot {
    Snapshot {
        index,
        term,
        conf_state: Some(ConfState {
            voters: vec![VOTE],
            ..Default::default()
        }),
    }
}

/// A directory for one log, removed after the test.
pub struct Scratch {
    _root: TempDir,
    pub dir: PathBuf,
}

impl Scratch {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("wal");
        Self { _root: root, dir }
    }

    pub fn create(&self) -> Wal {
        OPTIONS
            .create(&self.dir, Bytes::from_static(METADATA))
            .unwrap()
    }

    pub fn segments(&self) -> Vec<PathBuf> {
        segments_in(&self.dir)
    }

    /// Path and content of the last segment.
    pub fn tail(&self) -> (PathBuf, Vec<u8>) {
        let path = self.segments().pop().unwrap();
        let content = fs::read(&path).unwrap();
        (path, content)
    }
}

pub fn segments_in(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "wal"))
        .collect();
    paths.sort();
    paths
}

/// Every record of the log, with the offset it starts at.
pub fn records(dir: &Path) -> Vec<(u64, Record)> {
    read_records(dir)
        .unwrap()
        .map(|found| {
            found
                .map(|located| (located.offset, located.record))
                .unwrap()
        })
        .collect()
}

pub fn entries_in(records: &[(u64, Record)]) -> Vec<Entry> {
    records
        .iter()
        .filter_map(|(_, record)| match record {
            Record::Entry(entry) => Some(entry.clone()),
            _ => None,
        })
        .collect()
}

pub const START: SnapshotPoint = SnapshotPoint { index: 0, term: 0 };
