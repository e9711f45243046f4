//! Written databases of every shape read back unchanged.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use portunus_bolt::{KEY_BYTES_MAX, check};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use support::*;

/// Writes with both writers, compares the bytes, reads back, checks, and inspects the raw pages.
fn assert_round_trip(contents: &Contents, page_bytes: u32) -> Vec<u8> {
    let options = pages_of(page_bytes);
    let file = write_stream(contents, options);
    assert_eq!(plan(contents, options).file_bytes(), file.len() as u64);
    assert!(
        write_seekable(contents, options) == file,
        "both writers produce the same file"
    );

    let pages = raw_pages(&file, page_bytes as usize);
    for page in &pages {
        assert_eq!(page.id, (page.at / page_bytes as usize) as u64);
        assert!(page.count < u16::MAX);
        if page.flags == BRANCH {
            assert!(page.count >= 2, "branch {} has one child", page.id);
        }
    }

    let reader = open(file.clone());
    assert!(&read_all(&reader) == contents);
    let report = check(&reader);
    assert_eq!(report.problems, []);
    assert_eq!(report.pages_free, 0);
    assert_eq!(report.buckets, contents.len() as u64);
    let entries: usize = contents.values().map(BTreeMap::len).sum();
    assert_eq!(report.entries, entries as u64);
    file
}

#[test]
fn database_without_buckets_round_trips() {
    let file = assert_round_trip(&Contents::new(), 4096);
    assert_eq!(file.len(), 3 * 4096);
}

#[test]
fn empty_bucket_is_one_empty_leaf() {
    let file = assert_round_trip(&one_bucket([]), 4096);
    assert_eq!(file.len(), 4 * 4096);
}

#[test]
fn one_entry_round_trips() {
    assert_round_trip(&one_bucket([(b"k".to_vec(), b"v".to_vec())]), 4096);
}

#[test]
fn empty_value_round_trips() {
    let file = assert_round_trip(&one_bucket([(b"k".to_vec(), Vec::new())]), 4096);
    let reader = open(file);
    let bucket = reader.bucket(b"b").unwrap().unwrap();
    assert_eq!(bucket.get(b"k").unwrap(), Some(&b""[..]));
}

#[test]
fn ten_buckets_of_etcd_round_trip() {
    let mut contents: Contents = ETCD_BUCKETS
        .iter()
        .map(|name| (name.as_bytes().to_vec(), BTreeMap::new()))
        .collect();
    contents.insert(b"key".to_vec(), numbered(500, 100)[&b"b"[..]].clone());
    contents.insert(b"meta".to_vec(), [(b"term".to_vec(), vec![0; 8])].into());
    assert_round_trip(&contents, 4096);
}

#[test]
fn large_database_has_three_levels_of_pages_filled_to_90_percent() {
    let file = assert_round_trip(&numbered(100_000, 80), 4096);
    // 104 bytes per entry and 35 entries to 90 % of a page.
    let leaves = 100_000_usize.div_ceil(35);
    let branches = raw_pages(&file, 4096)
        .iter()
        .filter(|page| page.flags == BRANCH)
        .count();
    assert_eq!(file.len() / 4096, 2 + leaves + branches + 1);
    assert!((20..30).contains(&branches), "{branches}");
}

#[test]
fn tree_of_many_levels_round_trips() {
    // Keys of 300 bytes leave three to a branch of 1 KiB.
    let contents = one_bucket((0_u32..3_000).map(|n| {
        let mut key = vec![b'k'; 296];
        key.extend_from_slice(&n.to_be_bytes());
        (key, vec![n as u8; 10])
    }));
    assert_round_trip(&contents, 1024);
}

#[test]
fn every_number_of_entries_around_page_boundaries_round_trips() {
    // One entry to a leaf and two children to a branch: every tree up to six levels.
    for count in 0..70 {
        let contents = one_bucket((0_u8..count).map(|n| (vec![n + 1; 400], vec![n; 300])));
        assert_round_trip(&contents, 1024);
    }
}

#[test]
fn values_longer_than_a_page_take_overflow_pages() {
    let contents = one_bucket([
        (b"a".to_vec(), vec![1; 10]),
        (b"b".to_vec(), vec![2; 10_000_000]),
        (b"c".to_vec(), vec![3; 10]),
        (b"d".to_vec(), vec![4; 4096]),
        (b"e".to_vec(), vec![5; 1_500_000]),
    ]);
    let file = assert_round_trip(&contents, 4096);
    let overflow: u32 = raw_pages(&file, 4096)
        .iter()
        .map(|page| page.overflow)
        .sum();
    assert_eq!(overflow, 10_000_033 / 4096 + 1 + 1_500_033 / 4096);
}

#[test]
fn values_that_end_at_a_page_boundary_round_trip() {
    // Header, element and key take 33 bytes.
    for value_bytes in [4096 - 33, 4096 - 32, 8192 - 33, 8192 - 32] {
        let file = assert_round_trip(&one_bucket([(b"k".to_vec(), vec![9; value_bytes])]), 4096);
        assert_eq!(file.len() / 4096, 3 + (value_bytes + 33).div_ceil(4096));
    }
}

#[test]
fn longest_keys_make_branches_with_overflow() {
    let contents = one_bucket((0_u8..9).map(|n| (vec![n + 1; KEY_BYTES_MAX], vec![n; 3])));
    let file = assert_round_trip(&contents, 4096);
    assert!(
        raw_pages(&file, 4096)
            .iter()
            .any(|page| page.flags == BRANCH && page.overflow > 0)
    );
}

#[test]
fn largest_pages_hold_fewer_elements_than_the_count_field_allows() {
    assert_round_trip(&numbered(200_000, 0), 1 << 24);
}

#[test]
fn many_buckets_need_a_tree_of_names() {
    let contents = (0_u32..2_000)
        .map(|n| (n.to_be_bytes().to_vec(), BTreeMap::new()))
        .collect();
    let file = assert_round_trip(&contents, 1024);
    let reader = open(file);
    assert!(reader.bucket(&1_999_u32.to_be_bytes()).unwrap().is_some());
    assert!(reader.bucket(&2_000_u32.to_be_bytes()).unwrap().is_none());
}

#[test]
fn mapped_file_may_have_trailing_bytes() {
    let contents = numbered(10_000, 30);
    let mut file = write_stream(&contents, pages_of(4096));
    let database_bytes = file.len() as u64;
    file.extend_from_slice(&[0xAA; 32]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    std::fs::write(&path, file).unwrap();
    let reader = portunus_bolt::Reader::open(&path).unwrap();
    assert_eq!(read_all(&reader), contents);
    assert_eq!(reader.database_bytes(), database_bytes);
}

#[test]
fn open_refuses_a_file_locked_by_a_writer_but_not_by_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    std::fs::write(&path, write_stream(&numbered(3, 3), pages_of(4096))).unwrap();
    let first = portunus_bolt::Reader::open(&path).unwrap();
    let second = portunus_bolt::Reader::open(&path).unwrap();
    let writer = std::fs::File::options().write(true).open(&path).unwrap();
    assert!(
        writer.try_lock().is_err(),
        "a reader's lock excludes writers"
    );
    drop((first, second));
    writer.try_lock().unwrap();
    assert!(matches!(
        portunus_bolt::Reader::open(&path),
        Err(portunus_bolt::OpenError::InUse)
    ));
}

fn some_contents() -> impl Strategy<Value = Contents> {
    let key = prop_oneof![
        8 => vec(any::<u8>(), 1..20),
        1 => vec(any::<u8>(), 200..700),
    ];
    let value = prop_oneof![
        8 => vec(any::<u8>(), 0..100),
        1 => vec(any::<u8>(), 500..5_000),
    ];
    btree_map(vec(any::<u8>(), 1..12), btree_map(key, value, 0..150), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_contents_round_trip(contents in some_contents(), page_bits in 10_u32..14) {
        assert_round_trip(&contents, 1 << page_bits);
    }

    #[test]
    fn every_key_is_found_and_iteration_starts_anywhere(
        contents in some_contents(),
        probes in vec(vec(any::<u8>(), 1..20), 20),
    ) {
        let reader = open(write_stream(&contents, pages_of(1024)));
        for (name, entries) in &contents {
            let bucket = reader.bucket(name).unwrap().unwrap();
            let stored = entries.keys().take(40).cloned();
            for probe in probes.iter().cloned().chain(stored) {
                let expected = entries.get(&probe).map(Vec::as_slice);
                prop_assert_eq!(bucket.get(&probe).unwrap(), expected);
                let from_here: Vec<_> = bucket.iter_from(&probe).map(Result::unwrap).collect();
                let expected: Vec<_> = entries
                    .range(probe..)
                    .map(|(key, value)| (key.as_slice(), value.as_slice()))
                    .collect();
                prop_assert_eq!(from_here, expected);
            }
        }
        prop_assert!(reader.bucket(b"no such bucket").unwrap().is_none());
    }
}
