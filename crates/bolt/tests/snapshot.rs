//! Digest, hash and status over whole snapshots.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use portunus_bolt::snapshot::{self, DigestWriter, StatusError};
use portunus_bolt::{Reader, StreamWriter};
use support::*;

fn revision(main: i64, sub: i64, tombstone: bool) -> Vec<u8> {
    let mut key = [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat();
    key.extend(tombstone.then_some(b't'));
    key
}

/// A `KeyValue` message with only its key.
fn key_value(key: &str) -> Vec<u8> {
    [&[0x0a, key.len() as u8][..], key.as_bytes()].concat()
}

/// etcd's buckets, some members, and three keys: one put twice, one put and deleted, one put
/// again after its deletion.
fn etcd_contents() -> Contents {
    let mut contents: Contents = ETCD_BUCKETS
        .iter()
        .map(|name| (name.as_bytes().to_vec(), BTreeMap::new()))
        .collect();
    contents.insert(
        b"key".to_vec(),
        [
            (revision(2, 0, false), key_value("twice")),
            (revision(3, 0, false), key_value("gone")),
            (revision(4, 0, false), key_value("twice")),
            (revision(4, 1, false), key_value("back")),
            (revision(5, 0, true), key_value("gone")),
            (revision(6, 0, true), key_value("back")),
            (revision(7, 0, false), key_value("back")),
        ]
        .into(),
    );
    contents.insert(
        b"meta".to_vec(),
        [
            (b"consistent_index".to_vec(), 9_u64.to_be_bytes().to_vec()),
            (b"storageVersion".to_vec(), b"3.6.0".to_vec()),
            (b"term".to_vec(), 2_u64.to_be_bytes().to_vec()),
        ]
        .into(),
    );
    contents
}

fn with_meta(key: &str, value: &[u8]) -> Contents {
    let mut contents = etcd_contents();
    let meta = contents.get_mut(&b"meta"[..]).unwrap();
    meta.insert(key.as_bytes().to_vec(), value.to_vec());
    contents
}

fn reader(contents: &Contents) -> Reader {
    open(write_stream(contents, pages_of(4096)))
}

#[test]
fn status_counts_live_keys_and_names_the_last_revision() {
    let reader = reader(&etcd_contents());
    let status = snapshot::status(&reader).unwrap();
    assert_eq!(status.revision, 7);
    assert_eq!(status.total_keys, 2);
    assert_eq!(status.entries, 10);
    assert_eq!(status.total_bytes, reader.database_bytes());
    assert_eq!(status.version, "3.6.0");

    // The expected hash: the same bytes in the same order.
    let mut all = Vec::new();
    for (name, entries) in etcd_contents() {
        all.extend(name);
        all.extend(
            entries
                .into_iter()
                .flat_map(|(key, value)| [key, value])
                .flatten(),
        );
    }
    assert_eq!(status.hash, crc32c::crc32c(&all));
}

#[test]
fn empty_store_has_a_status() {
    let status = snapshot::status(&reader(&Contents::new())).unwrap();
    assert_eq!(
        (
            status.hash,
            status.revision,
            status.total_keys,
            status.version.as_str()
        ),
        (0, 0, 0, "")
    );
}

#[test]
fn invalid_storage_version_is_not_shown() {
    for (text, shown) in [
        ("3.6.0", "3.6.0"),
        ("3.7.0-alpha.0", "3.7.0-alpha.0"),
        ("3.6", ""),
        ("3..0", ""),
        ("three", ""),
        ("", ""),
    ] {
        let reader = reader(&with_meta("storageVersion", text.as_bytes()));
        assert_eq!(snapshot::status(&reader).unwrap().version, shown);
    }
}

#[test]
fn status_refuses_a_key_bucket_with_foreign_entries() {
    let mut contents = etcd_contents();
    let keys = contents.get_mut(&b"key"[..]).unwrap();
    keys.insert(b"no revision".to_vec(), Vec::new());
    assert!(matches!(
        snapshot::status(&reader(&contents)),
        Err(StatusError::Revision { key }) if key == b"no revision"
    ));

    let mut contents = etcd_contents();
    let keys = contents.get_mut(&b"key"[..]).unwrap();
    keys.insert(revision(8, 1, false), b"\x0a\x09short".to_vec());
    assert!(matches!(
        snapshot::status(&reader(&contents)),
        Err(StatusError::KeyValue { main: 8, sub: 1 })
    ));
}

#[test]
fn status_refuses_a_damaged_file() {
    let mut file = write_stream(&etcd_contents(), pages_of(4096));
    file[2 * 4096] ^= 1;
    assert!(matches!(
        snapshot::status(&open(file)),
        Err(StatusError::Damaged { total: 1, .. })
    ));
}

#[test]
fn hash_rpc_excludes_entries_that_differ_between_members() {
    let hash = |contents: &Contents| {
        snapshot::hash(&reader(contents), snapshot::excluded_from_hash_rpc).unwrap()
    };
    let before = hash(&etcd_contents());
    for (key, value) in [
        ("term", &[7; 8][..]),
        ("consistent_index", &[7; 8]),
        ("storageVersion", b"3.8.0"),
    ] {
        assert_eq!(hash(&with_meta(key, value)), before, "{key}");
    }
    assert_ne!(hash(&with_meta("confState", b"{}")), before);
}

#[test]
fn hash_is_independent_of_the_page_size() {
    let contents = numbered(3_000, 40);
    let hash = |page_bytes| {
        let reader = open(write_stream(&contents, pages_of(page_bytes)));
        snapshot::hash(&reader, |_, _| false).unwrap()
    };
    assert_eq!(hash(1024), hash(65_536));
}

#[test]
fn streamed_snapshot_with_digest_verifies_and_opens() {
    let contents = numbered(20_000, 100);
    let layout = plan(&contents, pages_of(4096));
    let mut writer = StreamWriter::new(layout.clone(), DigestWriter::new(Vec::new())).unwrap();
    writer.bucket(b"b").unwrap();
    for (key, value) in &contents[&b"b"[..]] {
        writer.entry(key, value).unwrap();
    }
    let file = writer.finish().unwrap().finish().unwrap();
    assert_eq!(
        file.len() as u64,
        layout.file_bytes() + snapshot::DIGEST_BYTES
    );

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot.db");
    std::fs::write(&path, file).unwrap();
    assert_eq!(snapshot::verify_file(&path).unwrap(), layout.file_bytes());
    assert_eq!(read_all(&Reader::open(&path).unwrap()), contents);
}
