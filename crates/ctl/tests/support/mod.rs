//! A real server and the real `portctl`.
//!
//! The server is `PORTCTL_TEST_SERVER` (any program that takes etcd's flags), else Go's etcd;
//! `portunus_testkit` finds that one and etcdctl. Without them the tests print SKIPPED on standard
//! error, past the test harness's capture, and prove nothing; `PORTUNUS_REQUIRE_GO=1` makes that
//! a failure instead.
#![allow(dead_code)]

pub mod cluster;
pub mod gated;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portunus_testkit::go::{Tool, find_for_test};
use tempfile::TempDir;

/// Long enough for a slow machine; a server that is not up by then is broken.
const START_WITHIN: Duration = Duration::from_secs(60);

/// etcdctl, if there is one.
pub fn etcdctl(test: &str) -> Option<PathBuf> {
    find_for_test(Tool::Etcdctl, test)
}

fn server_program(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("PORTCTL_TEST_SERVER").map(PathBuf::from);
    named.or_else(|| find_for_test(Tool::Etcd, test))
}

/// A running member with an empty store; stopped when dropped.
pub struct Server {
    program: PathBuf,
    process: Child,
    directory: TempDir,
    data_dir: PathBuf,
    pub client_port: u16,
    pub peer_port: u16,
}

impl Server {
    /// Starts a server, if there is a program for it.
    pub fn start(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        Self::start_on(test, directory, data_dir, free_port())
    }

    /// Starts a server on a directory that may hold data for this peer port.
    pub fn start_on(
        test: &str,
        directory: TempDir,
        data_dir: PathBuf,
        peer_port: u16,
    ) -> Option<Self> {
        let program = server_program(test)?;
        let client_port = free_port();
        let process = spawn(&program, &data_dir, client_port, peer_port);
        let server = Self {
            program,
            process,
            directory,
            data_dir,
            client_port,
            peer_port,
        };
        server.wait_until_healthy();
        Some(server)
    }

    fn wait_until_healthy(&self) {
        let deadline = Instant::now() + START_WITHIN;
        while !self.portctl(["endpoint", "health"]).success {
            assert!(
                Instant::now() < deadline,
                "the server did not start in time"
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// Kills the server and starts it again on the same data and ports.
    pub fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = spawn(
            &self.program,
            &self.data_dir,
            self.client_port,
            self.peer_port,
        );
        self.wait_until_healthy();
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// A path for files of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `portctl` against it.
    pub fn portctl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        self.portctl_with_input(arguments, b"")
    }

    /// Runs `portctl` against it with something on standard input.
    pub fn portctl_with_input<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Ran {
        let mut command = portctl();
        command.env("PORTCTL_ENDPOINTS", self.endpoint());
        run(command.args(arguments), input)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(program: &Path, data_dir: &Path, client_port: u16, peer_port: u16) -> Child {
    let client_url = format!("http://127.0.0.1:{client_port}");
    let peer_url = format!("http://127.0.0.1:{peer_port}");
    Command::new(program)
        .arg("--data-dir")
        .arg(data_dir)
        .args(["--name", "m1"])
        .args(["--listen-client-urls", &client_url])
        .args(["--advertise-client-urls", &client_url])
        .args(["--listen-peer-urls", &peer_url])
        .args(["--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &format!("m1={peer_url}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A port that is not in use at the moment.
pub fn free_port() -> u16 {
    portunus_testkit::ports::free_port().unwrap()
}

/// `portctl` without anything inherited that could change what it does.
pub fn portctl() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_portctl")))
}

/// Takes etcdctl's and our own variables away from a command.
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("PORTCTL_") || name_text.starts_with("ETCDCTL_") {
            command.env_remove(name);
        }
    }
    command
}

/// The outcome of a command: exit code and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub success: bool,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Its output, after checking that it succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.success, "{self:?}");
        self.out
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            success: output.status.success(),
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read its input may have closed it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap().into()
}
