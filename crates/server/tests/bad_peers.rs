//! With any input at the peer port, the cluster keeps serving, the log lines about it are few,
//! and memory stays bounded.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::leader_snapshot::{Database, envelope};
use common::requests::put;
use common::{WAIT_MAX, soon};
use portunus_proto::raftpb::{ConfState, Entry, Message, MessageType, Snapshot, SnapshotMetadata};
use prost::Message as _;

const MIB: u64 = 1 << 20;
/// A member without much data needs a tenth of this; memory that grows with bad input exceeds
/// it.
const RESIDENT_BYTES_MAX: u64 = 256 * MIB;
/// Bad requests of each kind; so many that a log line for each would be noticed.
const REPETITIONS: usize = 20;

/// The time between two log lines about refused requests.
const LOG_PAUSE: Duration = Duration::from_secs(10);
/// An election may occur on a busy machine; not always, though.
const ATTEMPTS_MAX: usize = 5;

struct Subject {
    cluster: Cluster,
    leader: usize,
    member: usize,
    cluster_id: String,
    writes: u64,
    started: Instant,
}

impl Subject {
    async fn start(test: &str) -> Subject {
        let started = Instant::now();
        let mut cluster = Cluster::start(test, 3, &[]).await;
        let member = cluster.follower().await;
        let leader = cluster.leader().await;
        let header = cluster.status(member).await.unwrap().header.unwrap();
        Subject {
            cluster,
            leader,
            member,
            cluster_id: format!("{:x}", header.cluster_id),
            writes: 0,
            started,
        }
    }

    fn id(&self, member: usize) -> u64 {
        self.cluster.members[member].id
    }

    /// Returns the headers of a correct peer.
    fn headers(&self) -> Vec<(String, String)> {
        let own = |name: &str, value: String| (name.to_owned(), value);
        vec![
            own("X-Server-From", format!("{:x}", self.id(self.leader))),
            own("X-Server-Version", "3.8.0".to_owned()),
            own("X-Min-Cluster-Version", "3.0.0".to_owned()),
            own("X-Etcd-Cluster-ID", self.cluster_id.clone()),
            own("X-Raft-To", format!("{:x}", self.id(self.member))),
        ]
    }

    fn headers_with(&self, name: &str, value: &str) -> Vec<(String, String)> {
        let mut headers = self.headers();
        headers.retain(|(own, _)| own != name);
        if !value.is_empty() {
            headers.push((name.to_owned(), value.to_owned()));
        }
        headers
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> (u16, String) {
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let asked = self
            .cluster
            .ask_peer_port(self.member, method, path, &headers, body);
        let answer = asked.await;
        (answer.status, answer.body)
    }

    /// Returns a message that claims to come from the leader.
    fn message(&self, kind: MessageType) -> Message {
        Message {
            r#type: kind as i32,
            from: self.id(self.leader),
            to: self.id(self.member),
            ..Message::default()
        }
    }

    /// Checks that all members serve, agree, and have not grown; the log of the target has a
    /// line about refused requests now and then, not one for each.
    async fn still_serves(&mut self) {
        for member in self.cluster.running() {
            self.writes += 1;
            let mut kv = self.cluster.clients(member).kv;
            let value = self.writes.to_string();
            soon("a put", kv.put(put("good", &value))).await.unwrap();
        }
        self.cluster.agree().await;
        let node = &self.cluster.members[self.member];
        let bytes = node.process.as_ref().unwrap().resident_bytes();
        eprintln!("resident: {} MiB", bytes / MIB);
        assert!(bytes < RESIDENT_BYTES_MAX, "{} MiB", bytes / MIB);
        let log = node.log();
        let lines = log
            .lines()
            .filter(|line| line.contains("refused a request"));
        let pauses = self.started.elapsed().as_secs() / LOG_PAUSE.as_secs();
        assert!(lines.count() as u64 <= pauses + 1, "{log}");
    }
}

/// Sends bytes and closes the connection, or waits until the other side does.
fn say(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    // The other side may have closed it.
    let _ = stream.write_all(bytes);
    let mut answer = [0; 4096];
    let _ = stream.read(&mut answer);
}

/// Bytes that are no HTTP, HTTP that is no request of a peer, and bodies that are no message.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_peer_requests_are_refused() {
    let mut subject = Subject::start("malformed_peer_requests_are_refused").await;
    let address = subject.cluster.members[subject.member].peer;
    let mut random = subject.cluster.random.fork();
    tokio::task::spawn_blocking(move || {
        for _ in 0..REPETITIONS {
            let garbage: Vec<u8> = (0..4096).map(|_| random.next().to_be_bytes()[0]).collect();
            say(address, &garbage);
        }
        say(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        say(address, &[b'A'; 200_000]);
        say(
            address,
            format!("GET /raft HTTP/1.1\r\nX: {}\r\n", "y".repeat(500_000)).as_bytes(),
        );
    })
    .await
    .unwrap();
    let headers = subject.headers();
    for _ in 0..REPETITIONS {
        let (status, text) = subject.ask("POST", "/raft", &headers, &[0xff; 100]).await;
        assert_eq!(
            (status, text.trim()),
            (400, "error unmarshalling raft message")
        );
    }
    for (method, path, expected) in [
        ("GET", "/raft", 405),
        ("POST", "/raft/stream/msgapp/1", 405),
        ("GET", "/raft/stream/nonsense/1", 404),
        ("GET", "/raft/stream/msgapp/no-number", 404),
        ("GET", "/raft/stream/msgapp/7", 404),
        ("GET", "/raft/snapshot", 405),
        ("POST", "/raft/nothing", 404),
    ] {
        let (status, text) = subject.ask(method, path, &headers, &[]).await;
        assert_eq!(status, expected, "{method} {path}: {text}");
    }
    subject.still_serves().await;
}

/// A member of another cluster, of an impossible version, or one that addresses another member.
#[tokio::test(flavor = "multi_thread")]
async fn peer_of_another_cluster_version_or_target_is_refused() {
    let mut subject = Subject::start("peer_of_another_cluster_version_or_target_is_refused").await;
    let heartbeat = subject.message(MessageType::MsgHeartbeat).encode_to_vec();
    let stream = format!("/raft/stream/msgapp/{:x}", subject.id(subject.leader));
    for _ in 0..REPETITIONS {
        for (name, value, expected) in [
            ("X-Etcd-Cluster-ID", "7", "cluster ID mismatch"),
            ("X-Etcd-Cluster-ID", "", "cluster ID mismatch"),
            ("X-Server-Version", "2.3.0", "incompatible version"),
            ("X-Server-Version", "", "incompatible version"),
            ("X-Server-Version", "new", "incompatible version"),
            ("X-Min-Cluster-Version", "3.9.0", "incompatible version"),
        ] {
            let headers = subject.headers_with(name, value);
            for (method, path) in [
                ("POST", "/raft"),
                ("GET", &stream),
                ("POST", "/raft/snapshot"),
            ] {
                let (status, text) = subject.ask(method, path, &headers, &heartbeat).await;
                assert_eq!(
                    (status, text.trim()),
                    (412, expected),
                    "{path} {name}: {value}"
                );
            }
        }
    }
    let headers = subject.headers_with("X-Raft-To", "7");
    let (status, text) = subject.ask("GET", &stream, &headers, &[]).await;
    assert_eq!((status, text.trim()), (412, "to field mismatch"));
    let elsewhere = Message {
        to: 7,
        ..subject.message(MessageType::MsgHeartbeat)
    };
    let headers = subject.headers();
    let (status, _) = subject
        .ask("POST", "/raft", &headers, &elsewhere.encode_to_vec())
        .await;
    assert_eq!(status, 412);
    subject.still_serves().await;
}

/// Messages of earlier terms and from unknown members change neither the data nor the leader.
#[tokio::test(flavor = "multi_thread")]
async fn stale_and_unknown_messages_change_nothing() {
    let mut subject = Subject::start("stale_and_unknown_messages_change_nothing").await;
    subject.still_serves().await;
    let headers = subject.headers();
    let entry = Entry {
        term: 1,
        index: 5,
        data: b"not what is there".to_vec().into(),
        ..Entry::default()
    };
    let kinds = [
        MessageType::MsgApp,
        MessageType::MsgHeartbeat,
        MessageType::MsgVote,
        MessageType::MsgPreVote,
        MessageType::MsgVoteResp,
        MessageType::MsgAppResp,
        MessageType::MsgHeartbeatResp,
        MessageType::MsgTimeoutNow,
        MessageType::MsgReadIndexResp,
        // Types that stay inside one process.
        MessageType::MsgHup,
        MessageType::MsgBeat,
        MessageType::MsgUnreachable,
        MessageType::MsgCheckQuorum,
        MessageType::MsgSnapStatus,
    ];
    let leadership = async |subject: &Subject| {
        let status = subject.cluster.status(subject.member).await.unwrap();
        (status.leader, status.raft_term)
    };
    for attempt in 1.. {
        let before = leadership(&subject).await;
        for kind in kinds {
            let message = Message {
                term: 1,
                log_term: 1,
                index: 4,
                commit: 3,
                entries: vec![entry.clone()],
                ..subject.message(kind)
            };
            for _ in 0..3 {
                let body = message.encode_to_vec();
                let (status, _) = subject.ask("POST", "/raft", &headers, &body).await;
                assert!(status != 403 && status != 410, "{kind:?}: {status}");
            }
        }
        let after = leadership(&subject).await;
        if before == after {
            break;
        }
        let logs = subject.cluster.logs();
        assert!(attempt < ATTEMPTS_MAX, "{before:?} {after:?}\n{logs}");
    }
    subject.still_serves().await;
}

/// A length of two gigabytes without content, and a message of which most is missing.
#[tokio::test(flavor = "multi_thread")]
async fn announced_length_allocates_no_memory() {
    let mut subject = Subject::start("announced_length_allocates_no_memory").await;
    let address = subject.cluster.members[subject.member].peer;
    let headers: String = subject
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let huge = (2_u64 << 30).to_be_bytes();
    let chunked = [&b"8\r\n"[..], &huge, b"\r\n"].concat();
    let mut held = Vec::new();
    for _ in 0..REPETITIONS {
        for (path, length, body) in [
            ("/raft", "Content-Length: 2147483648", &b"\x08\x03"[..]),
            ("/raft/snapshot", "Content-Length: 2147483648", &huge),
            ("/raft/snapshot", "Transfer-Encoding: chunked", &chunked),
        ] {
            let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}{length}\r\n\r\n");
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body).unwrap();
            held.push(stream);
        }
    }
    subject.still_serves().await;
    drop(held);
    subject.still_serves().await;
}

/// Encodes a leader's snapshot that is applied to `index`.
fn database(index: u64, has_record: bool) -> Vec<u8> {
    let damaged_records = usize::from(!has_record);
    Database {
        damaged_records,
        ..Database::at(index)
    }
    .encode()
}

impl Subject {
    /// Returns a snapshot message of the leader, with an index that the member does not have.
    async fn snapshot_message(&self, ahead: u64) -> Message {
        let status = self.cluster.status(self.member).await.unwrap();
        Message {
            term: status.raft_term,
            snapshot: Some(Snapshot {
                data: Default::default(),
                metadata: Some(SnapshotMetadata {
                    index: status.raft_index + ahead,
                    term: status.raft_term,
                    conf_state: Some(ConfState {
                        voters: (0..3).map(|member| self.id(member)).collect(),
                        ..ConfState::default()
                    }),
                }),
            }),
            ..self.message(MessageType::MsgSnap)
        }
    }
}

/// A user that cannot be read must not stop the member once the snapshot is installed: such a
/// snapshot is refused before raft gets it, whether it arrives in order or as a file.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_with_a_damaged_user_is_refused_before_raft_takes_it() {
    let test = "snapshot_with_a_damaged_user_is_refused_before_raft_takes_it";
    let mut subject = Subject::start(test).await;
    let headers = subject.headers();
    for in_order in [true, false] {
        let message = subject.snapshot_message(1000).await;
        let index = message.snapshot.as_ref().unwrap().metadata.as_ref();
        let damaged = Database {
            has_damaged_user: true,
            in_order,
            ..Database::at(index.unwrap().index)
        };
        let body = [envelope(&message), damaged.encode()].concat();
        let (status, text) = subject.ask("POST", "/raft/snapshot", &headers, &body).await;
        assert_eq!(status, 500, "{text}");
        assert!(text.contains("a record that cannot be read"), "{text}");
    }
    subject.still_serves().await;
    let member = subject.member;
    subject.cluster.kill(member);
    subject.cluster.start_one(member).await;
    subject.still_serves().await;
}

/// Raft would put a snapshot into its log whose database was never received, and the member
/// could never start again.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_message_without_its_database_is_refused() {
    let test = "snapshot_message_without_its_database_is_refused";
    let mut subject = Subject::start(test).await;
    let headers = subject.headers();
    let message = subject.snapshot_message(1000).await.encode_to_vec();
    let (status, text) = subject.ask("POST", "/raft", &headers, &message).await;
    assert!((400..=500).contains(&status) && status != 403, "{text}");
    subject.still_serves().await;
    let member = subject.member;
    subject.cluster.kill(member);
    subject.cluster.start_one(member).await;
    subject.still_serves().await;
}

/// A snapshot that is truncated, is no database, or does not match its message is refused;
/// nothing of it stays on disk.
#[tokio::test(flavor = "multi_thread")]
async fn broken_snapshots_are_refused() {
    let mut subject = Subject::start("broken_snapshots_are_refused").await;
    let before = subject.cluster.status(subject.member).await.unwrap();
    let message = subject.snapshot_message(1000).await;
    let index = before.raft_index + 1000;
    let headers = subject.headers();
    let good = envelope(&message);
    // As a member of Portunus sends it: complete, but behind the index of the message;
    // truncated in the middle; longer than its header; with a page out of place; with an
    // invalid record.
    let behind = database(index - 1000, true);
    let cut = database(index, true);
    let mut misplaced = cut.clone();
    misplaced[cut.len() / 2 / 4096 * 4096] ^= 1;
    let no_record = database(index, false);
    for body in [
        // Truncated within the message, right after it, and within the database.
        good[..good.len() - 3].to_vec(),
        good.clone(),
        [&good[..], &[0; 100]].concat(),
        [&good[..], &[0xa5; 100_000]].concat(),
        [&good[..], &behind].concat(),
        [&good[..], &cut[..cut.len() / 2]].concat(),
        [&good[..], &cut, &[0]].concat(),
        [&good[..], &misplaced].concat(),
        [&good[..], &no_record].concat(),
    ] {
        let (status, text) = subject.ask("POST", "/raft/snapshot", &headers, &body).await;
        assert!(
            (400..=500).contains(&status) && status != 403,
            "{status}: {text}"
        );
    }
    let no_snapshot = envelope(&subject.message(MessageType::MsgSnap));
    let wrong_kind = envelope(&subject.message(MessageType::MsgApp));
    for body in [no_snapshot, wrong_kind] {
        let (status, text) = subject.ask("POST", "/raft/snapshot", &headers, &body).await;
        assert!(
            (400..=500).contains(&status) && status != 403,
            "{status}: {text}"
        );
    }
    // Truncated in the middle of a body that announced more.
    let address = subject.cluster.members[subject.member].peer;
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!(
        "POST /raft/snapshot HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 1000000\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&good).unwrap();
    stream.write_all(&[7; 10_000]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    subject.still_serves().await;

    // It restarts with its own data, and refused snapshots take no space.
    let member = subject.member;
    subject.cluster.kill(member);
    subject.cluster.start_one(member).await;
    subject.still_serves().await;
    let dir = subject.cluster.members[member].dir.clone();
    let mut left = Vec::new();
    let mut folders = vec![dir];
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap().flatten() {
            let path = file.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.contains(&format!("{:x}", index)) {
                left.push(path);
            }
        }
    }
    assert!(left.is_empty(), "{left:?}");
}
