//! A disk that refuses writes under a running member: the member ends with one line about it,
//! acknowledges nothing that is not durable, and has all data when the disk works again.
//!
//! The disk is real; the system refuses writes beyond a file position once the process has a
//! limit for that, which can be set while it runs.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod writers;

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

use common::random::Random;
use common::{Process, Server, connect, data_dir, free_address, member_flags, portunus, soon};
use portunus_proto::etcdserverpb::{PutRequest, RangeRequest};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use writers::{Writer, Writing};

const WRITERS: usize = 3;
const MIB: u64 = 1024 * 1024;

/// Returns the binary with a refused write as an error instead of a signal, as from a full or
/// broken disk.
fn portunus_told_of_refusals() -> Command {
    let program = portunus();
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(program.get_program());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn start(dir: &Path) -> Server {
    let mut command = portunus_told_of_refusals();
    command
        .args(member_flags(dir))
        // The backend commits all the time.
        .args(["--backend-batch-interval=5ms", "--backend-batch-limit=20"]);
    Process::spawn(&mut command).ready()
}

/// Makes the process unable to write beyond this position of any file.
fn refuse_writes_beyond(position_bytes: u64, process_id: u32) {
    let process = Pid::from_raw(i32::try_from(process_id).unwrap());
    let limit = Rlimit {
        current: Some(position_bytes),
        maximum: Some(position_bytes),
    };
    prlimit(process, Resource::Fsize, limit).unwrap();
}

/// Runs writers until the member has ended; after some responses its disk refuses writes.
/// Returns the member's final log.
async fn fail_under_load(
    server: Server,
    writers: Vec<Writer>,
    acknowledgements: u64,
    position_bytes: u64,
) -> (String, Vec<Writer>) {
    let writing = Writing::begin(&server, writers, acknowledgements).await;
    refuse_writes_beyond(position_bytes, server.process.id());
    let (status, log) = tokio::task::spawn_blocking(|| server.process.ended())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    let writers = writing.ended().await;
    let last_words = log.lines().find(|line| line.starts_with("portunus: "));
    let last_words = last_words.unwrap_or_else(|| panic!("{log}")).to_owned();
    (last_words, writers)
}

async fn check(server: &Server, writers: &mut [Writer]) {
    let mut clients = server.connect().await;
    for writer in &mut *writers {
        writer.check_and_settle(&mut clients).await;
    }
    writers::check_revisions(writers, &mut clients).await;
}

fn some_writers(random: &mut Random) -> Vec<Writer> {
    let numbers = 0..WRITERS;
    numbers
        .map(|number| Writer::new(number, random.fork()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_log_write_stops_the_member_without_loss() {
    let (_guard, dir) = data_dir();
    let mut random = Random::seeded("failing disk");
    let mut writers = some_writers(&mut random);
    let mut server = start(&dir);
    for _ in 0..4 {
        let acknowledgements = 1 + random.below(300);
        let said;
        (said, writers) = fail_under_load(server, writers, acknowledgements, 0).await;
        // The log or the backend, whichever was written first.
        assert!(
            said.contains("check the disk") || said.contains("check its disk"),
            "{said}"
        );
        assert!(said.contains("File too large"), "{said}");
        server = start(&dir);
        check(&server, &mut writers).await;
    }
    server.stop();
}

/// The log is in its second file, at a small position, and the backend is larger than that.
#[tokio::test(flavor = "multi_thread")]
async fn failed_backend_write_stops_the_member_without_loss() {
    let (_guard, dir) = data_dir();
    let mut random = Random::seeded("failing backend");
    let server = start(&dir);
    let mut clients = server.connect().await;
    let large_values = 72;
    for number in 0..large_values {
        let put = PutRequest {
            key: format!("large/{number}").into(),
            value: vec![b'x'; MIB as usize].into(),
            ..PutRequest::default()
        };
        clients.kv.put(put).await.unwrap();
    }
    let writers = some_writers(&mut random);
    let (said, mut writers) = fail_under_load(server, writers, 100, 32 * MIB).await;
    assert!(!said.contains("write-ahead log"), "{said}");

    let server = start(&dir);
    check(&server, &mut writers).await;
    let mut clients = server.connect().await;
    let range = RangeRequest {
        key: "large/".into(),
        range_end: "large0".into(),
        count_only: true,
        ..RangeRequest::default()
    };
    let found = clients.kv.range(range).await.unwrap().into_inner();
    assert_eq!(found.count, large_values);
    server.stop();
}

/// Only log lines cannot be written, as if they were on another disk.
#[tokio::test(flavor = "multi_thread")]
async fn member_continues_when_its_stderr_cannot_be_written() {
    let (guard, dir) = data_dir();
    let lines = guard.path().join("lines");
    let position_bytes = 1024 * MIB;
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&lines)
        .unwrap();
    // A sparse file, which takes no space.
    file.set_len(position_bytes).unwrap();
    let address = free_address();
    let mut child = portunus_told_of_refusals()
        .arg(format!("--data-dir={}", dir.display()))
        .arg(format!("--listen-client-urls=http://{address}"))
        .arg(format!("--advertise-client-urls=http://{address}"))
        .arg("--listen-peer-urls=http://127.0.0.1:0")
        .arg("--log-level=debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .map(Guarded)
        .unwrap();
    soon("the member to listen", async {
        while std::net::TcpStream::connect(address).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut clients = connect(address).await;
    let put = PutRequest {
        key: "a".into(),
        value: "1".into(),
        ..PutRequest::default()
    };
    clients.kv.put(put.clone()).await.unwrap();
    let written_bytes = std::fs::metadata(&lines).unwrap().len();
    assert!(written_bytes > position_bytes, "it did say something");
    refuse_writes_beyond(position_bytes, child.0.id());
    for _ in 0..20 {
        clients.kv.put(put.clone()).await.unwrap();
        // Refused, which is logged.
        let nothing = PutRequest::default();
        clients.kv.put(nothing).await.unwrap_err();
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.0.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = child.0.wait().unwrap();
    assert!(status.success(), "{status}");
}

/// A child process, killed when dropped.
struct Guarded(std::process::Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
