//! Power loss: synced records are kept, unsynced ones are kept or lost, and no
//! other records appear.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;

use portunus_proto::raftpb::Entry;
use portunus_wal::Record;
use proptest::prelude::*;
use support::{OPTIONS, START, Scratch, entries_in, entry, payload, records, state};

const SECTOR_BYTES: usize = 512;

/// The end offset of each record.
fn ends(records: &[(u64, Record)], log_end: u64) -> Vec<u64> {
    let starts = records.iter().skip(1).map(|(offset, _)| *offset);
    starts.chain([log_end]).collect()
}

/// Length of the log in its only segment.
fn written_bytes(content: &[u8]) -> usize {
    let last = content.iter().rposition(|byte| *byte != 0).unwrap();
    // Records end on multiples of eight.
    (last + 8) / 8 * 8
}

#[test]
fn log_cut_at_any_byte_keeps_exactly_its_whole_records() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    for index in 1..=6 {
        // Sizes that place records inside one sector, across two, and over several.
        let data = payload(index, [3, 40, 700, 0, 530, 90][index as usize - 1]);
        wal.save(Some(&state(1, index - 1)), &[entry(1, index, data)], true)
            .unwrap();
    }
    drop(wal);
    let (path, content) = scratch.tail();
    let all = records(&scratch.dir);
    let log_end = written_bytes(&content) as u64;
    let ends = ends(&all, log_end);
    let first_cut = all[3].0 as usize;

    for cut in first_cut..=log_end as usize {
        fs::write(&path, &content[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut as u64).count();
        let kept_end = ends[whole - 1];

        let (mut wal, recovered) = OPTIONS.open(&scratch.dir, START).unwrap();
        assert_eq!(recovered.entries, entries_in(&all[..whole]), "cut at {cut}");
        match recovered.torn_tail {
            Some(torn) => {
                assert_eq!((torn.file, torn.offset), (path.clone(), kept_end));
                assert!(torn.bytes <= cut as u64 - kept_end);
            }
            // Zeros at the cut are taken for unused space.
            None => assert!(content[kept_end as usize..cut].iter().all(|b| *b == 0)),
        }

        // The log continues where it was cut. Slow, so not checked at each byte.
        if cut % 5 != 0 {
            continue;
        }
        let next = recovered.entries.len() as u64 + 1;
        wal.save(None, &[entry(1, next, payload(99, 50))], true)
            .unwrap();
        drop(wal);
        let (_, again) = OPTIONS.open(&scratch.dir, START).unwrap();
        assert_eq!(again.entries.len() as u64, next, "cut at {cut}");
        assert_eq!(again.torn_tail, None, "cut at {cut}");
    }
}

fn payload_sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![0..64usize, 400..600usize, 900..3000usize], 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The last batch was written but not synced, so any of its sectors may be
    /// missing, in any combination.
    #[test]
    fn lost_sectors_of_the_last_batch_leave_a_prefix_of_it(
        synced in payload_sizes(),
        unsynced in payload_sizes(),
        lost in prop::collection::vec(any::<bool>(), 64),
    ) {
        let scratch = Scratch::new();
        let mut wal = scratch.create();
        let entries: Vec<Entry> = synced.iter().chain(&unsynced).zip(1..)
            .map(|(bytes, index)| entry(1, index, payload(index, *bytes)))
            .collect();
        let (before, after) = entries.split_at(synced.len());
        wal.save(Some(&state(1, 0)), before, true).unwrap();
        let synced_end = written_bytes(&scratch.tail().1);
        wal.save(Some(&state(1, entries.len() as u64)), after, true).unwrap();
        drop(wal);

        let (path, mut content) = scratch.tail();
        if content.len() as u64 != support::SEGMENT_BYTES {
            // The batch filled the segment, so it is not the last one.
            return Ok(());
        }
        for (sector, _) in lost.iter().enumerate().filter(|(_, lost)| **lost) {
            let start = (sector * SECTOR_BYTES).max(synced_end);
            let end = ((sector + 1) * SECTOR_BYTES).min(content.len());
            if start < end {
                content[start..end].fill(0);
            }
        }
        fs::write(&path, &content).unwrap();

        let (_, recovered) = OPTIONS.open(&scratch.dir, START).unwrap();
        prop_assert!(recovered.entries.len() >= before.len());
        prop_assert!(entries.starts_with(&recovered.entries));
        prop_assert!(recovered.hard_state.commit <= recovered.entries.len() as u64);
        // Once opened, the log is clean.
        let (_, again) = OPTIONS.open(&scratch.dir, START).unwrap();
        prop_assert_eq!(again.torn_tail, None);
        prop_assert_eq!(again.entries, recovered.entries);
    }
}

#[test]
fn incomplete_record_of_an_older_segment_is_damage() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    for index in 1..=40 {
        wal.save(None, &[entry(1, index, payload(index, 900))], true)
            .unwrap();
    }
    drop(wal);
    let segments = scratch.segments();
    assert!(segments.len() >= 2);
    let content = fs::read(&segments[0]).unwrap();
    for cut in [content.len() - 1, content.len() - 9, content.len() - 600] {
        fs::write(&segments[0], &content[..cut]).unwrap();
        let error = OPTIONS.open(&scratch.dir, START).err().unwrap();
        assert!(error.to_string().contains("damaged at byte"), "{error}");
    }
}

#[test]
fn log_without_a_complete_head_is_refused() {
    let scratch = Scratch::new();
    drop(scratch.create());
    let (path, content) = scratch.tail();
    for cut in 0..40 {
        fs::write(&path, &content[..cut]).unwrap();
        let error = OPTIONS.open(&scratch.dir, START).err().unwrap();
        assert!(error.to_string().contains("damaged"), "{cut}: {error}");
    }
}
