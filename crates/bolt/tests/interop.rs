//! Interoperation with the Go programs: bbolt's checker and reader accept our files, we read
//! theirs, and `etcdutl` reports the same status and restores our snapshots.
//!
//! `portunus_testkit` locates the programs. Without them the tests print SKIPPED on standard error,
//! past the test harness's capture, and prove nothing; `PORTUNUS_REQUIRE_GO=1` makes that a failure
//! instead.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use portunus_bolt::snapshot::{self, DigestWriter};
use portunus_bolt::{EntryValue, Reader, StreamWriter, check};
use portunus_testkit::go::{Tool, find_for_test};
use support::*;

/// Runs a command and returns its output; on failure the error holds the output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn revision(main: i64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat()
}

/// The content of an etcd store: 3000 puts over 1000 keys, the last ten keys deleted again.
fn etcd_contents() -> Contents {
    let mut contents: Contents = ETCD_BUCKETS
        .iter()
        .map(|name| (name.as_bytes().to_vec(), BTreeMap::new()))
        .collect();
    let keys = contents.get_mut(&b"key"[..]).unwrap();
    for main in 2..=3_001_i64 {
        let key = format!("/registry/pods/{:04}", main % 1_000);
        let value_bytes = if main % 500 == 0 { 100_000 } else { 200 };
        // KeyValue: key, create revision, mod revision, version, value.
        let mut message = vec![0x0a, key.len() as u8];
        message.extend_from_slice(key.as_bytes());
        for tag in [0x10, 0x18] {
            message.push(tag);
            push_varint(&mut message, main as u64);
        }
        message.extend_from_slice(&[0x20, 1, 0x2a]);
        push_varint(&mut message, value_bytes as u64);
        message.resize(message.len() + value_bytes, b'x');
        keys.insert(revision(main), message);
    }
    for main in 3_002..=3_011_i64 {
        let key = format!("/registry/pods/{:04}", main % 1_000);
        let mut tombstone = revision(main);
        tombstone.push(b't');
        keys.insert(
            tombstone,
            [&[0x0a, key.len() as u8], key.as_bytes()].concat(),
        );
    }
    let meta = contents.get_mut(&b"meta"[..]).unwrap();
    meta.insert(
        b"confState".to_vec(),
        br#"{"voters":[1],"auto_leave":false}"#.to_vec(),
    );
    meta.insert(
        b"consistent_index".to_vec(),
        3_100_u64.to_be_bytes().to_vec(),
    );
    meta.insert(b"storageVersion".to_vec(), b"3.6.0".to_vec());
    meta.insert(b"term".to_vec(), 2_u64.to_be_bytes().to_vec());
    contents
}

fn push_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

fn many_shapes() -> Vec<(&'static str, Contents, u32)> {
    vec![
        ("no buckets", Contents::new(), 4096),
        ("an empty bucket", one_bucket([]), 4096),
        (
            "one entry",
            one_bucket([(b"k".to_vec(), b"v".to_vec())]),
            4096,
        ),
        ("etcd's buckets", etcd_contents(), 4096),
        ("100,000 entries", numbered(100_000, 50), 4096),
        ("large values", numbered(20, 300_000), 4096),
        ("small pages", numbered(5_000, 20), 1024),
        ("large pages", numbered(5_000, 20), 65_536),
        (
            "long keys",
            one_bucket((0_u8..40).map(|n| (vec![n + 1; 32_768], vec![n; 10]))),
            4096,
        ),
        (
            "binary tree",
            one_bucket((0_u8..70).map(|n| (vec![n + 1; 400], vec![n; 300]))),
            1024,
        ),
    ]
}

#[test]
fn bbolt_check_accepts_our_files() {
    let Some(bbolt) = find_for_test(Tool::Bbolt, "bbolt_check_accepts_our_files") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for (name, contents, page_bytes) in many_shapes() {
        let path = directory.path().join("db");
        fs::write(&path, write_stream(&contents, pages_of(page_bytes))).unwrap();
        let said = run(Command::new(&bbolt).arg("check").arg(&path))
            .unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert_eq!(said.trim(), "OK", "{name}");
    }
}

#[test]
fn bbolt_check_reports_swapped_keys() {
    let Some(bbolt) = find_for_test(Tool::Bbolt, "bbolt_check_reports_swapped_keys") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut file = write_stream(&numbered(1_000, 50), pages_of(4096));
    // Swap the first two keys of the first leaf.
    let (first, second) = (0_u64.to_be_bytes(), 1_u64.to_be_bytes());
    let data = 2 * 4096 + 16 + 16 * usize::from(raw_pages(&file, 4096)[2].count);
    put(&mut file, data, &second);
    put(&mut file, data + 58, &first);
    fs::write(&path, &file).unwrap();
    assert!(run(Command::new(&bbolt).arg("check").arg(&path)).is_err());
    assert!(!check(&open(file)).is_clean());
}

#[test]
fn bbolt_lists_our_keys_and_gets_our_values() {
    let Some(bbolt) = find_for_test(Tool::Bbolt, "bbolt_lists_our_keys_and_gets_our_values") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let contents = etcd_contents();
    fs::write(&path, write_stream(&contents, pages_of(4096))).unwrap();

    let buckets = run(Command::new(&bbolt).arg("buckets").arg(&path)).unwrap();
    assert_eq!(buckets.lines().collect::<Vec<_>>(), ETCD_BUCKETS);

    for bucket in ["key", "meta", "alarm"] {
        let entries = &contents[bucket.as_bytes()];
        let keys = run(Command::new(&bbolt)
            .args(["keys", "--format", "hex"])
            .arg(&path)
            .arg(bucket))
        .unwrap();
        let expected: Vec<String> = entries.keys().map(|key| hex(key)).collect();
        assert_eq!(keys.lines().collect::<Vec<_>>(), expected);

        for (key, value) in entries.iter().step_by(499) {
            let got = run(Command::new(&bbolt)
                .args(["get", "--format", "hex", "--parse-format", "hex"])
                .arg(&path)
                .args([bucket, &hex(key)]))
            .unwrap();
            assert_eq!(got.trim(), hex(value));
        }
    }
}

/// `compact` copies key by key into a new file with Go's own writer: inline buckets, a stored
/// freelist, half-full pages.
#[test]
fn reader_accepts_files_compacted_by_bbolt() {
    let Some(bbolt) = find_for_test(Tool::Bbolt, "reader_accepts_files_compacted_by_bbolt") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (
        directory.path().join("ours"),
        directory.path().join("theirs"),
    );
    for (name, contents, page_bytes) in many_shapes() {
        fs::write(&ours, write_stream(&contents, pages_of(page_bytes))).unwrap();
        let _ = fs::remove_file(&theirs);
        run(Command::new(&bbolt)
            .args(["compact", "--no-sync", "-o"])
            .args([&theirs, &ours]))
        .unwrap_or_else(|failure| panic!("{name}: {failure}"));

        let reader = Reader::open(&theirs).unwrap();
        assert!(read_all(&reader) == contents, "{name}");
        let report = check(&reader);
        assert_eq!(report.problems, [], "{name}");
        assert!(
            reader.freelist().unwrap().is_some(),
            "{name}: bbolt stores it"
        );
        assert_eq!(
            snapshot::hash(&reader, |_, _| false).unwrap(),
            snapshot::hash(&Reader::open(&ours).unwrap(), |_, _| false).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn reader_accepts_bbolt_files_with_nested_buckets_and_free_pages() {
    let Some(bbolt) = find_for_test(
        Tool::Bbolt,
        "reader_accepts_bbolt_files_with_nested_buckets_and_free_pages",
    ) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for mode in ["seq", "rnd", "seq-nest", "rnd-nest"] {
        let path = directory.path().join(mode);
        run(Command::new(&bbolt)
            .args(["bench", "--work", "--no-sync", "--profile-mode", "w"])
            .args([
                "--count",
                "2000",
                "--batch-size",
                "200",
                "--write-mode",
                mode,
            ])
            .arg("--path")
            .arg(&path))
        .unwrap();
        let reader = Reader::open(&path).unwrap();
        let report = check(&reader);
        assert_eq!(report.problems, [], "{mode}");
        assert_eq!(report.entries, 2_000, "{mode}");
        assert!(report.pages_free > 0, "{mode}: each batch frees pages");
        let nested = reader.buckets().any(|bucket| {
            let (_, bucket) = bucket.unwrap();
            bucket
                .entries()
                .any(|entry| matches!(entry.unwrap().value, EntryValue::Bucket(_)))
        });
        assert_eq!(nested, mode.ends_with("nest"));
    }
}

/// Streams a snapshot with its digest to `path`.
fn save_snapshot(contents: &Contents, path: &Path) {
    let layout = plan(contents, pages_of(4096));
    let out = DigestWriter::new(fs::File::create(path).unwrap());
    let mut writer = StreamWriter::new(layout, out).unwrap();
    for (name, entries) in contents {
        writer.bucket(name).unwrap();
        for (key, value) in entries {
            writer.entry(key, value).unwrap();
        }
    }
    writer.finish().unwrap().finish().unwrap();
}

#[test]
fn etcdutl_reports_the_same_status() {
    let Some(etcdutl) = find_for_test(Tool::Etcdutl, "etcdutl_reports_the_same_status") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot.db");
    save_snapshot(&etcd_contents(), &path);
    let said = run(Command::new(&etcdutl)
        .args(["snapshot", "status", "-w", "json"])
        .arg(&path))
    .unwrap();
    let theirs: serde_json::Value = serde_json::from_str(&said).unwrap();

    let ours = snapshot::status(&Reader::open(&path).unwrap()).unwrap();
    assert_eq!(
        theirs,
        serde_json::json!({
            "hash": ours.hash,
            "revision": ours.revision,
            "totalKey": ours.total_keys,
            "totalSize": ours.total_bytes,
            "version": ours.version,
        })
    );
    assert_eq!((ours.revision, ours.total_keys), (3_011, 990));
}

#[test]
fn etcdutl_restores_our_snapshot_to_a_readable_data_directory() {
    let Some(etcdutl) = find_for_test(
        Tool::Etcdutl,
        "etcdutl_restores_our_snapshot_to_a_readable_data_directory",
    ) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot.db");
    let contents = etcd_contents();
    save_snapshot(&contents, &path);
    let data_directory = directory.path().join("data");
    run(Command::new(&etcdutl)
        .args(["snapshot", "restore"])
        .arg(&path)
        .arg("--data-dir")
        .arg(&data_directory))
    .unwrap();

    let reader = Reader::open(data_directory.join("member/snap/db")).unwrap();
    assert_eq!(check(&reader).problems, []);
    let restored = read_all(&reader);
    assert!(restored[&b"key"[..]] == contents[&b"key"[..]]);
    assert_eq!(
        restored[&b"members"[..]].len(),
        1,
        "etcd has written to our file"
    );
}
