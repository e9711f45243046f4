//! One server process, Portunus or etcd, started with the same flags.
//!
//! A member of a [`Cluster`](crate::cluster::Cluster), with a fresh data directory on free
//! loopback ports. It never outlives its value: what is not stopped is killed, and its data
//! goes with it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portunus_peers::free_port;
use tempfile::TempDir;
use thiserror::Error;

use crate::client;

/// A server that does not answer by then is reported as broken.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// A server that does not stop by then is killed.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Lines of a server's log that an error shows.
const LOG_LINES_SHOWN: usize = 5;

/// etcd's defaults, given to both so that they are the same.
const HEARTBEAT_MS: &str = "100";
const ELECTION_MS: &str = "1000";
/// No load comes near it.
const QUOTA_BYTES: &str = "8589934592";

/// Which binary, and what it calls itself.
#[derive(Debug, Clone)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// Name and version, for people.
    pub label: String,
}

/// How a process is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// SIGTERM: it may tidy up.
    Asked,
    /// SIGKILL: as in a crash.
    Killed,
}

/// Where a member lives.
#[derive(Debug)]
pub struct Place {
    name: String,
    data: TempDir,
    client_port: u16,
    peer_port: u16,
}

/// What a member is told about its cluster.
#[derive(Debug, Clone)]
pub struct Founding {
    /// All members, as `--initial-cluster` wants them.
    pub initial_cluster: String,
    /// Whether the others run already.
    pub is_joining: bool,
    /// Flags beside those that every member gets.
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

/// A server that cannot be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ServerError {
    /// No binary there, or it does not run.
    #[error("{path} cannot be started: give the path of a binary that runs here")]
    Start { path: String, source: io::Error },
    /// No directory or port for it.
    #[error("no temporary directory or free port: check TMPDIR and its free space")]
    Prepare(#[source] io::Error),
    /// It ended by itself.
    #[error("{label} ended with {status} before it answered; its last lines:\n{log}")]
    Ended {
        label: String,
        status: String,
        log: String,
    },
    /// It runs, but does not answer.
    #[error("{label} did not answer within {seconds} s; its last lines:\n{log}")]
    Silent {
        label: String,
        seconds: u64,
        log: String,
    },
    /// It could not be ended.
    #[error("{label} could not be stopped")]
    Stop { label: String, source: io::Error },
}

impl Program {
    /// Asks the binary for its version.
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

/// The first word that looks like a version.
fn version_in(text: &str) -> String {
    text.split_whitespace()
        .map(|word| word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()))
        .find(|word| word.starts_with(|letter: char| letter.is_ascii_digit()) && word.contains('.'))
        .unwrap_or("of unknown version")
        .to_owned()
}

impl Place {
    /// An empty directory and two ports that were free a moment ago.
    pub fn new(name: &str) -> Result<Place, ServerError> {
        Ok(Place {
            name: name.to_owned(),
            data: TempDir::with_prefix("compare-").map_err(ServerError::Prepare)?,
            client_port: free_port().map_err(ServerError::Prepare)?,
            peer_port: free_port().map_err(ServerError::Prepare)?,
        })
    }

    /// Where other members reach it.
    #[must_use]
    pub fn peer_url(&self) -> String {
        url(self.peer_port)
    }

    /// Its part of `--initial-cluster`.
    #[must_use]
    pub fn introduction(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }
}

impl Server {
    /// Starts it, and does not wait for anything.
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

    /// Ends it and starts it again on the same data. Returns how long it took from the
    /// start of the new process to its first answer to a linearizable read.
    pub async fn restart(&mut self, ending: Ending) -> Result<Duration, ServerError> {
        self.end(ending).await?;
        self.start_again().await
    }

    /// Starts one that has ended, on its data, and returns how long it took to its first
    /// answer to a linearizable read; by then it has caught up with the others.
    pub async fn start_again(&mut self) -> Result<Duration, ServerError> {
        let started = Instant::now();
        self.process = spawn(&self.program, &self.place, &self.founding)?;
        self.wait_until_it_answers().await?;
        Ok(started.elapsed())
    }

    /// For the meters.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Where clients connect, as `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.place.client_port)
    }

    /// Where other members reach it, and its part of `--initial-cluster`.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Waits until it answers a linearizable read, which takes a leader.
    pub async fn wait_until_it_answers(&mut self) -> Result<(), ServerError> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            self.check_it_runs()?;
            if client::is_answering(&self.address()).await {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.silent(START_TIME_MAX));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// An error if the process has ended.
    pub fn check_it_runs(&mut self) -> Result<(), ServerError> {
        match self.process.try_wait() {
            Ok(Some(status)) => Err(ServerError::Ended {
                label: self.program.label.clone(),
                status: status.to_string(),
                log: self.last_log_lines(),
            }),
            _ => Ok(()),
        }
    }

    /// The error of one that was waited for in vain.
    #[must_use]
    pub fn silent(&self, waited: Duration) -> ServerError {
        ServerError::Silent {
            label: self.program.label.clone(),
            seconds: waited.as_secs(),
            log: self.last_log_lines(),
        }
    }

    /// Ends it; returns when there is no such process any more.
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
        // It may have ended already; nothing can be done about any other failure here.
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
    fn versions_are_found_in_what_either_server_prints() {
        assert_eq!(version_in("etcd Version: 3.7.1\nGit SHA: 123.4\n"), "3.7.1");
        assert_eq!(version_in("portunus 0.1.0 (etcd 3.8)\n"), "0.1.0");
        assert_eq!(version_in("what?"), "of unknown version");
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_reported_with_its_status() {
        let program = Program {
            path: "/bin/false".into(),
            label: "false".to_owned(),
        };
        let place = Place::new("m0").unwrap();
        let founding = Founding {
            initial_cluster: place.introduction(),
            is_joining: false,
            flags: &[],
        };
        let mut server = Server::launch(&program, place, founding).unwrap();
        let error = server.wait_until_it_answers().await.unwrap_err();
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    }

    #[test]
    fn no_two_places_share_a_port_or_a_directory() {
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
    fn a_binary_that_is_not_there_is_named() {
        let error = Program::at(Path::new("/nowhere/etcd"), "etcd").unwrap_err();
        assert!(error.to_string().contains("/nowhere/etcd"), "{error}");
    }
}
