//! A log that was torn by a crash is truncated and that is logged; any other damage stops the
//! start, with the file and the offset.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Server, data_dir, launch};
use portunus_bolt::{BulkOptions, FileWriter};
use portunus_proto::etcdserverpb::{PutRequest, RangeRequest};
use portunus_wal::{LocatedRecord, Record, read_records};

/// Keeps the backend empty, so that all data is in the log only.
const LOG_ONLY: &[&str] = &[
    "--backend-batch-interval=1h",
    "--backend-batch-limit=1000000",
];

const PUTS: usize = 10;
/// Several sectors, as a torn write loses whole ones.
const VALUE_BYTES: usize = 3000;

/// Returns a directory with ten puts, whose member was killed.
async fn killed_member() -> (tempfile::TempDir, PathBuf) {
    member_killed_after_put_of(0).await
}

/// Returns such a directory with one more put of so many bytes.
async fn member_killed_after_put_of(bytes: usize) -> (tempfile::TempDir, PathBuf) {
    let (guard, dir) = data_dir();
    let server = Server::start(&dir, LOG_ONLY);
    let mut clients = server.connect().await;
    for number in 0..PUTS {
        let request = PutRequest {
            key: format!("k{number}").into(),
            value: vec![b'v'; VALUE_BYTES].into(),
            ..PutRequest::default()
        };
        clients.kv.put(request).await.unwrap();
    }
    if bytes > 0 {
        let request = PutRequest {
            key: "last".into(),
            value: vec![b'v'; bytes].into(),
            ..PutRequest::default()
        };
        clients.kv.put(request).await.unwrap();
    }
    server.kill();
    (guard, dir)
}

fn wal_dir(dir: &Path) -> PathBuf {
    dir.join("member").join("wal")
}

/// Returns the positions of the puts in the log.
fn puts(dir: &Path) -> Vec<LocatedRecord> {
    let records = read_records(&wal_dir(dir)).unwrap();
    let is_put = |located: &LocatedRecord| matches!(&located.record, Record::Entry(entry) if entry.data.len() > VALUE_BYTES);
    let puts: Vec<LocatedRecord> = records.map(Result::unwrap).filter(is_put).collect();
    assert_eq!(puts.len(), PUTS);
    puts
}

fn segment(located: &LocatedRecord) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&located.file)
        .unwrap()
}

async fn keys(server: &Server) -> i64 {
    let request = RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        count_only: true,
        ..RangeRequest::default()
    };
    let response = server.connect().await.kv.range(request).await.unwrap();
    response.into_inner().count
}

/// Checks that the member starts, logs that the last record was torn, and has the other puts; a
/// second start finds nothing more to repair.
async fn assert_repaired(dir: &Path, expected_keys: i64) {
    let server = Server::start(dir, LOG_ONLY);
    let line = server
        .process
        .find_line("torn by a crash")
        .expect("it says what it did");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["level"], "WARN");
    assert!(line["file"].as_str().unwrap().ends_with(".wal"), "{line}");
    assert!(line["offset"].as_u64().unwrap() > 0, "{line}");
    assert_eq!(keys(&server).await, expected_keys);
    let request = PutRequest {
        key: "k-after".into(),
        ..PutRequest::default()
    };
    server.connect().await.kv.put(request).await.unwrap();
    server.kill();
    let server = Server::start(dir, LOG_ONLY);
    assert!(
        !server.process.log().contains("torn by a crash"),
        "{}",
        server.process.log()
    );
    assert_eq!(keys(&server).await, expected_keys + 1);
}

/// Checks that the start is refused with one line that names the file and the offset.
fn assert_refused(dir: &Path, file: &Path, offset: Option<u64>) {
    let before: Vec<u8> = fs::read(file).unwrap();
    let (status, log) = launch(dir, LOG_ONLY).ended();
    assert_eq!(status.code(), Some(1), "{log}");
    let line = log.lines().last().unwrap();
    assert!(line.starts_with("portunus: "), "{line}");
    assert!(line.contains(&file.display().to_string()), "{line}");
    assert!(line.contains("damaged at byte"), "{line}");
    if let Some(offset) = offset {
        assert!(line.contains(&format!("at byte {offset}:")), "{line}");
    }
    assert!(
        fs::read(file).unwrap() == before,
        "damage must be left as it was found"
    );
}

#[tokio::test]
async fn file_that_ends_inside_its_last_record_is_truncated() {
    let (_guard, dir) = killed_member().await;
    let last = puts(&dir).pop().unwrap();
    segment(&last).set_len(last.offset + 1000).unwrap();
    assert_repaired(&dir, PUTS as i64 - 1).await;
}

#[tokio::test]
async fn sectors_that_were_never_written_are_a_torn_record() {
    let (_guard, dir) = killed_member().await;
    let last = puts(&dir).pop().unwrap();
    // Some sectors of the record were written, the rest of the file was not.
    let from = (last.offset + 1024) / 512 * 512;
    let file = segment(&last);
    let zeros = vec![0; 1 << 20];
    file.write_all_at(&zeros, from).unwrap();
    assert_repaired(&dir, PUTS as i64 - 1).await;
}

#[tokio::test]
async fn changed_byte_in_the_middle_stops_the_start() {
    let (_guard, dir) = killed_member().await;
    let middle = puts(&dir).swap_remove(PUTS / 2);
    segment(&middle)
        .write_all_at(b"X", middle.offset + 500)
        .unwrap();
    assert_refused(&dir, &middle.file, Some(middle.offset));
}

/// The last record was written completely, so a wrong byte in it is no torn write.
#[tokio::test]
async fn changed_byte_in_the_last_record_stops_the_start() {
    let (_guard, dir) = killed_member().await;
    let last = puts(&dir).pop().unwrap();
    segment(&last)
        .write_all_at(b"X", last.offset + 500)
        .unwrap();
    assert_refused(&dir, &last.file, Some(last.offset));
}

/// A torn write leaves the sector after the last record empty or complete. Other bytes in that
/// sector are damage, and records before them may be overwritten, too.
#[tokio::test]
async fn bytes_after_the_end_of_the_log_stop_the_start() {
    const SECTOR_BYTES: u64 = 512;
    const GARBAGE: [u8; 64] = [0xab; 64];
    // The log has to end far enough before the end of its sector, because bytes in the next
    // sector may come from a torn write.
    let mut found = None;
    for bytes in (0..SECTOR_BYTES as usize).step_by(GARBAGE.len()) {
        let (guard, dir) = member_killed_after_put_of(bytes).await;
        let last = puts(&dir).pop().unwrap();
        let log = fs::read(&last.file).unwrap();
        let end = log.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
        let at = end.next_multiple_of(8) + 8;
        if at + GARBAGE.len() as u64 <= end.next_multiple_of(SECTOR_BYTES) {
            found = Some((guard, dir, last, at));
            break;
        }
    }
    let (_guard, dir, last, at) = found.expect("one of the logs ends early in a sector");
    segment(&last).write_all_at(&GARBAGE, at).unwrap();
    assert_refused(&dir, &last.file, None);
}

#[tokio::test]
async fn missing_log_with_a_non_empty_backend_stops_the_start() {
    let (_guard, dir) = data_dir();
    Server::start(&dir, &[]).stop();
    fs::remove_dir_all(wal_dir(&dir)).unwrap();
    let (status, log) = launch(&dir, &[]).ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(
        log.lines().last().unwrap().contains("holds no log"),
        "{log}"
    );
}

/// The backend has acknowledged writes that the log does not have: the disk lost them.
#[tokio::test]
async fn log_that_ends_before_the_backend_stops_the_start() {
    let (_guard, dir) = killed_member().await;
    let third = puts(&dir).swap_remove(3);
    let server = Server::start(&dir, LOG_ONLY);
    server.stop();
    let file = segment(&third);
    let bytes = file.metadata().unwrap().len();
    file.set_len(third.offset).unwrap();
    file.set_len(bytes).unwrap();
    let (status, log) = launch(&dir, LOG_ONLY).ended();
    assert_eq!(status.code(), Some(1), "{log}");
    let line = log.lines().last().unwrap();
    assert!(line.contains("but the backend has applied"), "{line}");
}

/// The log may need a snapshot that was received and not installed. As long as it cannot be
/// read, that is unknown.
#[tokio::test]
async fn received_snapshot_is_kept_while_the_log_is_unreadable() {
    let (_guard, dir) = killed_member().await;
    let waiting = dir.join("member/incoming-00000000000000ff");
    fs::create_dir(&waiting).unwrap();
    let first = &puts(&dir)[0];
    let byte = first.offset + 100;
    segment(first).write_all_at(&[0xff], byte).unwrap();
    let (status, log) = launch(&dir, LOG_ONLY).ended();
    assert!(!status.success(), "{log}");
    assert!(waiting.exists(), "{log}");

    segment(first).write_all_at(b"v", byte).unwrap();
    let server = Server::start(&dir, LOG_ONLY);
    assert_eq!(keys(&server).await, PUTS as i64);
    assert!(!waiting.exists(), "the log does not know it");
}

/// Returns the names and lengths of all files in a directory.
fn listing(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for file in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let metadata = file.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(file.path());
                found.push((file.path(), 0));
            } else {
                found.push((file.path(), metadata.len()));
            }
        }
    }
    found.sort();
    found
}

/// What to install and what to remove depends on the whole log, so nothing happens before the
/// log is read: neither to snapshots of the leader nor to the data of etcd.
#[tokio::test]
async fn start_that_cannot_read_the_log_changes_nothing() {
    let (_guard, dir) = killed_member().await;
    let damaged = puts(&dir).swap_remove(2);
    segment(&damaged)
        .write_all_at(b"damage", damaged.offset + 100)
        .unwrap();
    let member = dir.join("member");
    for name in ["incoming-00000000000003e8", "portunus-0000000000000001"] {
        fs::create_dir(member.join(name)).unwrap();
    }
    let before = listing(&dir);
    assert_refused(&dir, &damaged.file, Some(damaged.offset));
    assert_eq!(listing(&dir), before);

    // A directory that etcd used.
    for name in ["incoming-00000000000003e8", "portunus-0000000000000001"] {
        fs::remove_dir(member.join(name)).unwrap();
    }
    fs::remove_dir_all(member.join("portunus")).unwrap();
    fs::create_dir(member.join("snap")).unwrap();
    let writer = FileWriter::new(BulkOptions::default(), Cursor::new(Vec::new())).unwrap();
    let database = writer.finish().unwrap().0.into_inner();
    fs::write(member.join("snap").join("db"), database).unwrap();
    let before = listing(&dir);
    assert_refused(&dir, &damaged.file, Some(damaged.offset));
    assert_eq!(listing(&dir), before);
}
