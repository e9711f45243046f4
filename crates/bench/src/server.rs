//! One server process, Portunus or etcd, started with the same flags.
//!
//! A member of a [`Cluster`](crate::cluster::Cluster), with a new data directory and free
//! loopback ports. Dropping the value kills the process and deletes its data.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portunus_testkit::ports::free_port;
use tempfile::TempDir;
use thiserror::Error;

use crate::client;

/// The time limit for a start.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// The time limit for a stop; then the server is killed.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Log lines in an error.
const LOG_LINES_SHOWN: usize = 5;

/// etcd's defaults, set for both servers.
const HEARTBEAT_MS: &str = "100";
const ELECTION_MS: &str = "1000";
/// Larger than the data of any workload.
const QUOTA_BYTES: &str = "8589934592";

/// A server binary and its version.
#[derive(Debug, Clone)]
pub struct Program {
    /// The path of the binary.
    pub path: PathBuf,
    /// Name and version.
    pub label: String,
}

/// How a process is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// SIGTERM: a graceful stop.
    Asked,
    /// SIGKILL: as in a crash.
    Killed,
}

/// The data directory and ports of a member.
#[derive(Debug)]
pub struct Place {
    name: String,
    data: TempDir,
    client_port: u16,
    peer_port: u16,
}

/// The cluster flags of a member.
#[derive(Debug, Clone)]
pub struct Founding {
    /// The value of `--initial-cluster`.
    pub initial_cluster: String,
    /// Whether the member joins a running cluster.
    pub is_joining: bool,
    /// Additional flags.
    pub flags: &'static [&'static str],
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    process: Child,
    program: Program,
    place: Place,
    founding: Founding,
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
    Silent {
        label: String,
        seconds: u64,
        log: String,
    },
    /// Stopping the process failed.
    #[error("{label} could not be stopped")]
    Stop { label: String, source: io::Error },
}

impl Program {
    /// Runs the binary with `--version` for its label.
    pub fn at(path: &Path, name: &str) -> Result<Program, ServerError> {
        let output = Command::new(path)
            .arg("--version")
            .output()
            .map_err(|source| ServerError::Start {
                path: path.display().to_string(),
                source,
            })?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout));
        Ok(Program {
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

impl Place {
    /// Creates an empty directory and chooses two free ports.
    pub fn new(name: &str) -> Result<Place, ServerError> {
        Ok(Place {
            name: name.to_owned(),
            data: TempDir::with_prefix("compare-").map_err(ServerError::Prepare)?,
            client_port: free_port().map_err(ServerError::Prepare)?,
            peer_port: free_port().map_err(ServerError::Prepare)?,
        })
    }

    /// Returns the peer URL.
    #[must_use]
    pub fn peer_url(&self) -> String {
        url(self.peer_port)
    }

    /// Returns the member's entry in `--initial-cluster`.
    #[must_use]
    pub fn initial_cluster_entry(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }
}

impl Server {
    /// Starts the process without waiting.
    pub fn launch(
        program: &Program,
        place: Place,
        founding: Founding,
    ) -> Result<Server, ServerError> {
        Ok(Server {
            process: spawn(program, &place, &founding)?,
            program: program.clone(),
            place,
            founding,
        })
    }

    /// Stops the process and starts it again with the same data. Returns the time from the
    /// start of the new process to its first answer to a linearizable read.
    pub async fn restart(&mut self, ending: Ending) -> Result<Duration, ServerError> {
        self.end(ending).await?;
        self.start_again().await
    }

    /// Starts a stopped server with its data. Returns the time to its first answer to a
    /// linearizable read; by then it has caught up with the other members.
    pub async fn start_again(&mut self) -> Result<Duration, ServerError> {
        let started = Instant::now();
        self.process = spawn(&self.program, &self.place, &self.founding)?;
        self.wait_until_answering().await?;
        Ok(started.elapsed())
    }

    /// Returns the process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the client address as `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.place.client_port)
    }

    /// Returns the data directory and ports.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Waits until the server answers a linearizable read, which requires a leader.
    pub async fn wait_until_answering(&mut self) -> Result<(), ServerError> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            self.check_running()?;
            if client::is_answering(&self.address()).await {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.silent(START_TIME_MAX));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns an error if the process has ended.
    pub fn check_running(&mut self) -> Result<(), ServerError> {
        match self.process.try_wait() {
            Ok(Some(status)) => Err(ServerError::Ended {
                label: self.program.label.clone(),
                status: status.to_string(),
                log: self.last_log_lines(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the error for a server that did not answer within a time limit.
    #[must_use]
    pub fn silent(&self, waited: Duration) -> ServerError {
        ServerError::Silent {
            label: self.program.label.clone(),
            seconds: waited.as_secs(),
            log: self.last_log_lines(),
        }
    }

    /// Stops the process and waits for its end.
    pub async fn end(&mut self, ending: Ending) -> Result<(), ServerError> {
        let failed = |source: io::Error| ServerError::Stop {
            label: self.program.label.clone(),
            source,
        };
        if ending == Ending::Asked {
            let process_id = i32::try_from(self.process.id()).unwrap_or(i32::MAX);
            kill(Pid::from_raw(process_id), Signal::SIGTERM).map_err(|e| failed(e.into()))?;
            let deadline = Instant::now() + STOP_TIME_MAX;
            while Instant::now() < deadline {
                if self.process.try_wait().map_err(failed)?.is_some() {
                    return Ok(());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            eprintln!(
                "!! {} did not stop when asked; killing it",
                self.program.label
            );
        }
        self.process
            .kill()
            .and_then(|()| self.process.wait())
            .map_err(failed)?;
        Ok(())
    }

    fn last_log_lines(&self) -> String {
        let log = fs::read_to_string(log_path(self.place.data.path())).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process has ended already; other errors cannot be handled here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(program: &Program, place: &Place, founding: &Founding) -> Result<Child, ServerError> {
    let data = place.data.path();
    let log = File::options()
        .create(true)
        .append(true)
        .open(log_path(data))
        .map_err(ServerError::Prepare)?;
    let (client_url, peer_url) = (url(place.client_port), place.peer_url());
    let data_dir = data.join("member");
    let state = if founding.is_joining {
        "existing"
    } else {
        "new"
    };
    Command::new(&program.path)
        .args(["--name", &place.name])
        .arg("--data-dir")
        .arg(&data_dir)
        .args(["--listen-client-urls", &client_url])
        .args(["--advertise-client-urls", &client_url])
        .args(["--listen-peer-urls", &peer_url])
        .args(["--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &founding.initial_cluster])
        .args(["--initial-cluster-state", state])
        .args(["--heartbeat-interval", HEARTBEAT_MS])
        .args(["--election-timeout", ELECTION_MS])
        .args(["--quota-backend-bytes", QUOTA_BYTES])
        .args(["--log-level", "error"])
        .args(founding.flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|source| ServerError::Start {
            path: program.path.display().to_string(),
            source,
        })
}

fn log_path(data: &Path) -> PathBuf {
    data.join("server.log")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_from_the_output_of_both_servers() {
        assert_eq!(version_in("etcd Version: 3.7.1\nGit SHA: 123.4\n"), "3.7.1");
        assert_eq!(version_in("portunus 0.1.0 (etcd 3.8)\n"), "0.1.0");
        assert_eq!(version_in("what?"), "of unknown version");
    }

    #[tokio::test]
    async fn server_that_exits_at_once_is_reported_with_its_status() {
        let program = Program {
            path: "/bin/false".into(),
            label: "false".to_owned(),
        };
        let place = Place::new("m0").unwrap();
        let founding = Founding {
            initial_cluster: place.initial_cluster_entry(),
            is_joining: false,
            flags: &[],
        };
        let mut server = Server::launch(&program, place, founding).unwrap();
        let error = server.wait_until_answering().await.unwrap_err();
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    }

    #[test]
    fn places_have_distinct_ports_and_directories() {
        let (one, other) = (Place::new("m0").unwrap(), Place::new("m1").unwrap());
        let ports = [
            one.client_port,
            one.peer_port,
            other.client_port,
            other.peer_port,
        ];
        let unique: std::collections::BTreeSet<u16> = ports.into_iter().collect();
        assert_eq!(unique.len(), ports.len());
        assert_ne!(one.data.path(), other.data.path());
    }

    #[test]
    fn missing_binary_is_named_in_the_error() {
        let error = Program::at(Path::new("/nowhere/etcd"), "etcd").unwrap_err();
        assert!(error.to_string().contains("/nowhere/etcd"), "{error}");
    }
}
