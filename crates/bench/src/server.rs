//! One server process, Portunus or etcd, started with the same flags.
//!
//! A member of a [`Cluster`](crate::cluster::Cluster), with a new data directory and free
//! loopback ports. Dropping the value kills the process and deletes its data.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use portunus_testkit::member::{InitialState, Member};
use portunus_testkit::process::Process;
use portunus_testkit::program::Kind;
use portunus_tls::ClientTls;
use tempfile::TempDir;
use thiserror::Error;

use crate::access::Access;
use crate::client;
use crate::endpoint::Endpoint;

/// The time limit for a start.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// The time limit for a stop; then the server is killed.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Log lines in an error.
const LOG_LINES_SHOWN: usize = 5;

/// Flags of every server.
const FLAGS: &[&str] = &[
    // etcd's defaults.
    "--heartbeat-interval=100",
    "--election-timeout=1000",
    // Larger than the data of any workload.
    "--quota-backend-bytes=8589934592",
    "--log-level=error",
];

/// A server binary and its version.
#[derive(Debug, Clone)]
pub struct Program {
    /// The implementation.
    pub kind: Kind,
    /// The path of the binary.
    pub path: PathBuf,
    /// Name and version.
    pub label: String,
}

/// How a process is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// SIGTERM: a graceful stop.
    Graceful,
    /// SIGKILL: as in a crash.
    Killed,
}

/// A server, running or not. Dropping the value kills the process and deletes its data.
#[derive(Debug)]
pub struct Server {
    member: Member,
    label: String,
    tls: Option<ClientTls>,
    token: Option<Arc<str>>,
    _data: TempDir,
}

/// A server that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ServerError {
    /// The binary is missing or does not run.
    #[error("{path} cannot be started: give the path of a binary that runs here")]
    Start { path: String, source: io::Error },
    /// No temporary directory or free port.
    #[error("no temporary directory or free port: check TMPDIR and its free space")]
    Prepare(#[source] io::Error),
    /// The process ended before it answered.
    #[error("{label} ended with {status} before it answered; its last lines:\n{log}")]
    Ended {
        label: String,
        status: String,
        log: String,
    },
    /// The process runs but does not answer.
    #[error("{label} did not answer within {seconds} s; its last lines:\n{log}")]
    NotAnswering {
        label: String,
        seconds: u64,
        log: String,
    },
}

impl Program {
    /// Runs the binary with `--version` for its label.
    pub fn at(path: &Path, kind: Kind) -> Result<Program, ServerError> {
        let output = Command::new(path)
            .arg("--version")
            .output()
            .map_err(|source| ServerError::Start {
                path: path.display().to_string(),
                source,
            })?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout));
        let name = match kind {
            Kind::Portunus => "portunus",
            Kind::Etcd => "etcd",
        };
        Ok(Program {
            kind,
            path: path.to_owned(),
            label: format!("{name} {version}"),
        })
    }
}

/// Returns the first part of the text that looks like a version.
fn version_in(text: &str) -> String {
    text.split_whitespace()
        .map(|part| part.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()))
        .find(|part| part.starts_with(|letter: char| letter.is_ascii_digit()) && part.contains('.'))
        .unwrap_or("of unknown version")
        .to_owned()
}

impl Server {
    /// Prepares a server with an empty data directory and free ports; `flags` are added to those
    /// of every server and of the mode.
    pub fn new(
        program: &Program,
        name: &str,
        flags: &[&str],
        access: &Access,
    ) -> Result<Server, ServerError> {
        let data = TempDir::with_prefix("compare-").map_err(ServerError::Prepare)?;
        let label = program.label.clone();
        let program = portunus_testkit::program::Program {
            kind: program.kind,
            path: program.path.clone(),
        };
        let mut member = Member::new(name, program, data.path()).map_err(ServerError::Prepare)?;
        let flags = FLAGS.iter().chain(flags).map(|flag| (*flag).to_owned());
        member.flags = flags.chain(access.server_flags()).collect();
        let tls = access.client_tls();
        member.client_is_tls = tls.is_some();
        Ok(Server {
            member,
            label,
            tls,
            token: None,
            _data: data,
        })
    }

    /// Returns addresses and flags.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Starts the process without waiting, as a member of this `--initial-cluster`.
    pub fn launch(
        &mut self,
        initial_cluster: &str,
        initial_state: InitialState,
    ) -> Result<(), ServerError> {
        initial_cluster.clone_into(&mut self.member.initial_cluster);
        self.member.initial_state = initial_state;
        self.spawn()
    }

    fn spawn(&mut self) -> Result<(), ServerError> {
        let launched = self.member.try_launch(&[]);
        launched.map_err(|source| ServerError::Start {
            path: self.member.program.path.display().to_string(),
            source,
        })
    }

    /// Stops the process and starts it again with the same data. Returns the time from the
    /// start of the new process to its first answer to a linearizable read.
    pub async fn restart(&mut self, stop_mode: StopMode) -> Result<Duration, ServerError> {
        self.end(stop_mode).await;
        self.start_again().await
    }

    /// Starts a stopped server with its data. Returns the time to its first answer to a
    /// linearizable read; by then it has caught up with the other members.
    pub async fn start_again(&mut self) -> Result<Duration, ServerError> {
        let started = Instant::now();
        self.spawn()?;
        self.wait_until_answering().await?;
        Ok(started.elapsed())
    }

    /// Returns the process id; 0 if it does not run.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        let process = self.member.process.as_ref();
        process.map(Process::id).unwrap_or_default()
    }

    /// Returns where and as whom clients connect.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.member.endpoint().into(),
            tls: self.tls.clone(),
            token: self.token.clone(),
        }
    }

    /// Makes later connections use the token of a user.
    pub fn set_token(&mut self, token: Arc<str>) {
        self.token = Some(token);
    }

    /// Waits until the server answers a linearizable read, which requires a leader.
    pub async fn wait_until_answering(&mut self) -> Result<(), ServerError> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            self.check_running()?;
            if client::is_answering(&self.endpoint()).await {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.not_answering(START_TIME_MAX));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns an error if the process has ended.
    pub fn check_running(&mut self) -> Result<(), ServerError> {
        let status = self.member.process.as_mut().and_then(Process::exit_status);
        match status {
            Some(status) => Err(ServerError::Ended {
                label: self.label.clone(),
                status: status.to_string(),
                log: self.last_log_lines(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the error for a server that did not answer within a time limit.
    #[must_use]
    pub fn not_answering(&self, waited: Duration) -> ServerError {
        ServerError::NotAnswering {
            label: self.label.clone(),
            seconds: waited.as_secs(),
            log: self.last_log_lines(),
        }
    }

    /// Stops the process and waits for its end.
    pub async fn end(&mut self, stop_mode: StopMode) {
        if stop_mode == StopMode::Graceful
            && let Some(process) = &mut self.member.process
        {
            process.signal(Signal::SIGTERM);
            let deadline = Instant::now() + STOP_TIME_MAX;
            while !process.has_ended() && Instant::now() < deadline {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            if !process.has_ended() {
                eprintln!("!! {} did not stop when asked; killing it", self.label);
            }
        }
        self.member.kill();
    }

    fn last_log_lines(&self) -> String {
        let process = self.member.process.as_ref();
        process
            .map(|it| it.log_tail(LOG_LINES_SHOWN))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Mode;

    #[test]
    fn version_is_parsed_from_the_output_of_both_servers() {
        assert_eq!(version_in("etcd Version: 3.7.1\nGit SHA: 123.4\n"), "3.7.1");
        assert_eq!(version_in("portunus 0.1.0 (etcd 3.8)\n"), "0.1.0");
        assert_eq!(version_in("what?"), "of unknown version");
    }

    #[tokio::test]
    async fn server_that_exits_at_once_is_reported_with_its_status() {
        let program = Program {
            kind: Kind::Etcd,
            path: "/bin/false".into(),
            label: "false".to_owned(),
        };
        let access = Access::new(Mode::default()).unwrap();
        let mut server = Server::new(&program, "m0", &[], &access).unwrap();
        let initial_cluster = server.member().initial_cluster_entry();
        server.launch(&initial_cluster, InitialState::New).unwrap();
        let error = server.wait_until_answering().await.unwrap_err();
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    }

    #[test]
    fn missing_binary_is_named_in_the_error() {
        let error = Program::at(Path::new("/nowhere/etcd"), Kind::Etcd).unwrap_err();
        assert!(error.to_string().contains("/nowhere/etcd"), "{error}");
    }
}
