//! Runs the real binary as a process on loopback, for tests that use a member the way its
//! clients and its operators do.
//!
//! A [`Server`] is a process that serves; it listens at a port the system chose and is killed
//! when dropped, so no test leaves one behind. [`launch`] is for processes that are not
//! expected to get that far.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod any_bytes;
pub mod cluster;
pub mod gates;
pub mod held_thread;
pub mod leader_snapshot;
pub mod load;
pub mod network;
pub mod random;
pub mod requests;
pub mod stored;
pub mod versions;
pub mod watching;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::auth_client::AuthClient;
use portunus_proto::etcdserverpb::cluster_client::ClusterClient;
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use portunus_proto::etcdserverpb::watch_client::WatchClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// The longest wait for anything that must happen. Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The log line of a process that serves clients.
pub const READY: &str = "ready to serve client requests";

/// The binary under test, without the environment variables of etcd.
pub fn portunus() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ETCD_") {
            command.env_remove(name);
        }
    }
    command
}

/// Returns flags of a member with its data in `dir` and a port that the system chooses.
pub fn member_flags(dir: &Path) -> Vec<String> {
    vec![
        format!("--data-dir={}", dir.display()),
        "--listen-client-urls=http://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
    ]
}

/// Returns an unused address, for programs that need one in advance.
pub fn free_address() -> SocketAddr {
    let listener = portunus_testkit::ports::free_listener().unwrap();
    listener.local_addr().unwrap()
}

/// A process that may or may not come to serve.
pub struct Process {
    child: Child,
    log: Arc<Log>,
}

/// Lines the process wrote to stderr so far.
#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Log {
    fn collect(&self, stderr: impl Read) {
        for line in BufReader::new(stderr).lines() {
            let Ok(line) = line else { break };
            self.lines.lock().unwrap().0.push(line);
            self.changed.notify_all();
        }
        self.lines.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// Starts a member in `dir` and returns at once.
pub fn launch(dir: &Path, flags: &[&str]) -> Process {
    Process::spawn(portunus().args(member_flags(dir)).args(flags))
}

impl Process {
    /// Runs any command line of the binary.
    pub fn spawn(command: &mut Command) -> Process {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Log::default());
        let collector = Arc::clone(&log);
        std::thread::spawn(move || collector.collect(stderr));
        Process { child, log }
    }

    /// Waits for a line that contains `text`; `None` if the process ended without one.
    pub fn find_line(&self, text: &str) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.log.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.0.iter().find(|line| line.contains(text)) {
                return Some(line.clone());
            }
            if lines.1 {
                return None;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no line with {text:?} in:\n{}",
                lines.0.join("\n")
            );
            lines = self.log.changed.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// Returns how many lines it wrote so far.
    pub fn lines_said(&self) -> usize {
        self.log.lines.lock().unwrap().0.len()
    }

    /// Kills it, as a power failure would, as soon as it writes a line that contains `text`
    /// after the first `known_lines`.
    pub fn kill_when_it_says(mut self, known_lines: usize, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.log.lines.lock().unwrap();
        while !lines.0[known_lines..]
            .iter()
            .any(|line| line.contains(text))
        {
            let left = deadline.saturating_duration_since(Instant::now());
            let log = || lines.0.join("\n");
            assert!(!left.is_zero() && !lines.1, "no {text:?} in:\n{}", log());
            lines = self.log.changed.wait_timeout(lines, left).unwrap().0;
        }
        drop(lines);
        self.kill();
    }

    /// Whether a line that contains `text` was written so far.
    pub fn has_said(&self, text: &str) -> bool {
        let lines = self.log.lines.lock().unwrap();
        lines.0.iter().any(|line| line.contains(text))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib: u64 = line
            .and_then(|line| line.split_whitespace().nth(1))
            .and_then(|number| number.parse().ok())
            .expect("a process has resident memory");
        kib * 1024
    }

    /// Returns everything it wrote to stderr so far.
    pub fn log(&self) -> String {
        self.log.lines.lock().unwrap().0.join("\n")
    }

    /// Waits until it ends by itself; returns its exit status and its log.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "still running:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut lines = self.log.lines.lock().unwrap();
        while !lines.1 {
            lines = self.log.changed.wait(lines).unwrap();
        }
        let text = lines.0.join("\n");
        drop(lines);
        (status, text)
    }

    /// Kills it, as a power failure would.
    pub fn kill(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a stop signal and waits until it has ended.
    pub fn terminate(self) -> (ExitStatus, String) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.ended()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits until it serves; panics with its log if it does not.
    pub fn ready(self) -> Server {
        let Some(line) = self.find_line(READY) else {
            panic!("the member did not start:\n{}", self.log());
        };
        let line: serde_json::Value = serde_json::from_str(&line).expect("log lines are JSON");
        let addresses = line["addresses"].as_str().unwrap();
        let first = addresses.split(',').next().unwrap();
        Server {
            address: first.parse().unwrap(),
            process: self,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A member that serves clients.
pub struct Server {
    /// The address of its client port.
    pub address: SocketAddr,
    /// The process.
    pub process: Process,
}

impl Server {
    /// Starts a member in `dir` and waits until it serves.
    pub fn start(dir: &Path, flags: &[&str]) -> Server {
        launch(dir, flags).ready()
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Stops it cleanly.
    pub fn stop(self) {
        let (status, log) = self.process.terminate();
        assert!(status.success(), "{status}:\n{log}");
        assert!(
            log.contains(r#""message":"stopped""#),
            "not cleanly:\n{log}"
        );
    }

    /// Opens a new connection.
    pub async fn connect(&self) -> Clients {
        connect(self.address).await
    }

    /// Sends an HTTP/1.1 request on a separate connection.
    pub fn http(&self, method: &str, path: &str) -> HttpAnswer {
        http_at(self.address, method, path, &[], &[])
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str) -> HttpAnswer {
        self.http("GET", path)
    }
}

/// The response of an HTTP request.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Sends an HTTP/1.1 request on a separate connection.
pub fn http_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> HttpAnswer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    HttpAnswer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// The clients of one connection.
#[derive(Clone)]
pub struct Clients {
    pub channel: Channel,
    pub kv: KvClient<Channel>,
    pub watch: WatchClient<Channel>,
    pub lease: LeaseClient<Channel>,
    pub maintenance: MaintenanceClient<Channel>,
    pub cluster: ClusterClient<Channel>,
    pub auth: AuthClient<Channel>,
}

/// Opens a new connection to a member.
pub async fn connect(address: SocketAddr) -> Clients {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    clients_of(endpoint.connect().await.expect("the member can be reached"))
}

/// Returns the clients of a connection.
pub fn clients_of(channel: Channel) -> Clients {
    let limit = usize::MAX;
    Clients {
        kv: KvClient::new(channel.clone()).max_decoding_message_size(limit),
        watch: WatchClient::new(channel.clone()).max_decoding_message_size(limit),
        lease: LeaseClient::new(channel.clone()),
        maintenance: MaintenanceClient::new(channel.clone()).max_decoding_message_size(limit),
        cluster: ClusterClient::new(channel.clone()),
        auth: AuthClient::new(channel.clone()),
        channel,
    }
}

/// Creates a data directory that is removed when the test ends.
pub fn data_dir() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member.etcd");
    (dir, path)
}

/// Waits for an event that must occur.
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event)
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Returns the code and text of a refusal.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String) {
    let status = result.expect_err("the request must be refused");
    (status.code(), status.message().to_owned())
}
