//! Real servers and the real `portctl`.
//!
//! Commands are checked against Portunus and, with the same expectations, against Go's etcd
//! ([`for_each_server`]). Without etcd the second half prints SKIPPED on standard error, past the
//! test harness's capture; `PORTUNUS_REQUIRE_GO=1` makes that a failure instead. [`portunus_testkit::program`]
//! finds or builds both programs.
#![allow(dead_code)]

pub mod cluster;
pub mod running;
pub mod twins;

use std::ffi::OsStr;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use portunus_testkit::go::{Tool, find_for_test};
use portunus_testkit::member::Member;
use portunus_testkit::ports;
use portunus_testkit::program::Program;
use portunus_testkit::wait::until_blocking;
use tempfile::TempDir;

/// Runs a check against Portunus and against Go's etcd, if there is one.
pub fn for_each_server(test: &str, check: impl Fn(&Program)) {
    let portunus = Program::portunus();
    for program in [Some(portunus), Program::etcd(test)].into_iter().flatten() {
        // Shown if the check fails.
        eprintln!("{test}: against {:?}", program.kind);
        check(&program);
    }
}

/// etcdctl, if there is one.
pub fn etcdctl(test: &str) -> Option<PathBuf> {
    find_for_test(Tool::Etcdctl, test)
}

/// etcdutl, if there is one.
pub fn etcdutl(test: &str) -> Option<PathBuf> {
    find_for_test(Tool::Etcdutl, test)
}

/// A running member with an empty store; stopped when dropped.
pub struct Server {
    member: Member,
    directory: TempDir,
}

impl Server {
    /// Starts a server.
    pub fn start(program: &Program) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let member = Member::new("m1", program.clone(), directory.path()).unwrap();
        Self::launch(member, directory)
    }

    /// Starts a server on a directory that holds data for this peer address.
    pub fn start_on(
        program: &Program,
        directory: TempDir,
        data_dir: PathBuf,
        peer: SocketAddr,
    ) -> Self {
        let mut member = Member::new("m1", program.clone(), directory.path()).unwrap();
        member.dir = data_dir;
        member.peer = peer;
        member.advertised_peer = peer;
        member.initial_cluster = member.initial_cluster_entry();
        Self::launch(member, directory)
    }

    /// Starts two servers with the same ids, so that their answers have the same bytes. Passwords
    /// are hashed at the lowest cost.
    pub fn start_twins(program: &Program) -> [Self; 2] {
        let peer = free_address();
        [(); 2].map(|()| {
            let directory = tempfile::tempdir().unwrap();
            let mut member = Member::new("m1", program.clone(), directory.path()).unwrap();
            member.advertised_peer = peer;
            member.initial_cluster = member.initial_cluster_entry();
            member.flags = vec!["--bcrypt-cost=4".to_owned()];
            Self::launch(member, directory)
        })
    }

    fn launch(mut member: Member, directory: TempDir) -> Self {
        member.launch(&[]);
        let server = Self { member, directory };
        server.wait_until_healthy();
        server
    }

    #[track_caller]
    fn wait_until_healthy(&self) {
        until_blocking("healthy server", || {
            match self.portctl(["endpoint", "health"]) {
                ran if ran.success => Ok(()),
                ran => Err((ran, self.member.log())),
            }
        });
    }

    /// Kills the server and starts it again on the same data and ports.
    pub fn restart(&mut self) {
        self.member.kill();
        self.member.launch(&[]);
        self.wait_until_healthy();
    }

    pub fn endpoint(&self) -> String {
        self.member.endpoint()
    }

    /// A path for files of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the server in good order; its data directory stays until this is dropped.
    pub fn stop(&mut self) -> PathBuf {
        self.member.terminate();
        self.member.dir.clone()
    }

    /// Starts a stopped server on its data.
    pub fn start_again(&mut self) {
        self.member.launch(&[]);
        self.wait_until_healthy();
    }

    /// A command of `portctl` or etcdctl against it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = clean(Command::new(program));
        command.env("ETCDCTL_ENDPOINTS", self.endpoint());
        command
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

/// An address that is not in use at the moment.
pub fn free_address() -> SocketAddr {
    ports::free_address().unwrap()
}

/// A peer URL with an unused port.
pub fn free_peer_url() -> String {
    format!("http://{}", free_address())
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
