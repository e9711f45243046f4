//! Flipped bits. No record may be dropped or changed because of one; the log
//! refuses to open and reports the location.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;

use portunus_wal::{Damage, OpenError, ReadError};
use support::{OPTIONS, START, Scratch, entry, payload, records, snapshot, state};

/// Entries with and without payload, states, a snapshot; records inside one
/// sector and across two.
fn varied_log(scratch: &Scratch) {
    let mut wal = scratch.create();
    for index in 1..=8 {
        let data = payload(index, [20, 0, 64, 450, 7, 0, 130, 16][index as usize - 1]);
        wal.save(Some(&state(2, index - 1)), &[entry(2, index, data)], true)
            .unwrap();
        if index == 4 {
            wal.save_snapshot(&snapshot(3, 2)).unwrap();
        }
    }
}

#[test]
fn flipped_bit_before_the_last_record_is_reported_with_its_location() {
    let scratch = Scratch::new();
    varied_log(&scratch);
    let (path, content) = scratch.tail();
    let all = records(&scratch.dir);
    let last_record = all.last().unwrap().0;

    for bit in 0..last_record as usize * 8 {
        let mut flipped = content.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).unwrap();
        let record = all
            .iter()
            .rposition(|(offset, _)| *offset <= bit as u64 / 8)
            .unwrap();

        let error = OPTIONS.open(&scratch.dir, START).err();
        let Some(OpenError::Read(ReadError::Damaged { file, offset, .. })) = error else {
            panic!("bit {bit} in {:?}: {error:?}", all[record]);
        };
        assert_eq!(file, path);
        // A state decoded as an entry is detected only at a later record.
        let found_soon = all[record].0 <= offset && offset <= last_record;
        assert!(found_soon, "bit {bit}: {offset}");
    }

    fs::write(&path, &content).unwrap();
    OPTIONS.open(&scratch.dir, START).unwrap();
}

#[test]
fn flipped_bit_in_the_last_record_never_yields_a_wrong_entry() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    for index in 1..=3 {
        wal.save(None, &[entry(2, index, payload(index, 100))], true)
            .unwrap();
    }
    drop(wal);
    let (path, content) = scratch.tail();
    let (_, intact) = OPTIONS.open(&scratch.dir, START).unwrap();
    let last_record = records(&scratch.dir).last().unwrap().0 as usize;
    let end = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;

    for bit in last_record * 8..end * 8 {
        let mut flipped = content.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).unwrap();
        match OPTIONS.open(&scratch.dir, START) {
            Ok((_, recovered)) => assert!(intact.entries.starts_with(&recovered.entries)),
            Err(error) => assert!(error.to_string().contains("damaged at byte")),
        }
    }
}

#[test]
fn erased_length_field_is_damage_not_the_end() {
    let scratch = Scratch::new();
    varied_log(&scratch);
    let (path, mut content) = scratch.tail();
    let (offset, _) = records(&scratch.dir)[6];
    content[offset as usize..][..8].fill(0);
    fs::write(&path, &content).unwrap();
    let error = OPTIONS.open(&scratch.dir, START).err();
    assert!(matches!(
        error,
        Some(OpenError::Read(ReadError::Damaged {
            damage: Damage::ErasedLength,
            ..
        }))
    ));
}

#[test]
fn segment_of_another_log_is_refused() {
    let (ours, theirs) = (Scratch::new(), Scratch::new());
    for (scratch, seed) in [(&ours, 1), (&theirs, 2)] {
        let mut wal = scratch.create();
        for index in 1..=40 {
            wal.save(None, &[entry(1, index, payload(index + seed, 900))], true)
                .unwrap();
        }
    }
    fs::copy(&theirs.segments()[1], &ours.segments()[1]).unwrap();
    let error = OPTIONS.open(&ours.dir, START).err();
    let Some(OpenError::Read(ReadError::Damaged { file, offset, .. })) = error else {
        panic!("{error:?}");
    };
    assert_eq!((file, offset), (ours.segments()[1].clone(), 0));
}
