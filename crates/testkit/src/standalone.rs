//! A Portunus member that is a cluster of its own, at ports that the system chooses.
//!
//! It logs the address of its client port when it serves. [`launch`] is for processes that are
//! not expected to get that far.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::client::{Clients, connect};
use crate::http::{HttpAnswer, http_at};
use crate::process::Process;
use crate::program::Program;

/// The log message of a member that serves clients.
pub const READY: &str = "ready to serve client requests";

/// Returns the flags of a member with its data in `dir`.
#[must_use]
pub fn member_flags(dir: &Path) -> Vec<String> {
    vec![
        format!("--data-dir={}", dir.display()),
        "--listen-client-urls=http://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
    ]
}

/// Starts a member with its data in `dir` and returns at once.
#[track_caller]
#[must_use]
pub fn launch(dir: &Path, flags: &[&str]) -> Process {
    let mut command = Program::portunus().command();
    Process::spawn(command.args(member_flags(dir)).args(flags))
}

/// Creates a data directory that is removed when the test ends.
///
/// # Panics
/// If there is no room for temporary files.
#[must_use]
pub fn data_dir() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member.etcd");
    (dir, path)
}

/// Returns the first client address in the log line of a member that is ready.
#[must_use]
pub fn address_in(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let first = line["addresses"].as_str()?.split(',').next()?;
    first.trim().parse().ok()
}

impl Process {
    /// Waits until a member serves.
    ///
    /// # Panics
    /// If it ends before; the message has its log.
    #[track_caller]
    #[must_use]
    pub fn ready(self) -> Server {
        let Some(line) = self.find_line(READY) else {
            panic!("the member did not start:\n{}", self.log());
        };
        Server {
            address: address_in(&line).expect("a member that is ready logs its addresses"),
            process: self,
        }
    }
}

/// A member that serves clients.
#[derive(Debug)]
pub struct Server {
    /// The address of its client port.
    pub address: SocketAddr,
    /// The process.
    pub process: Process,
}

impl Server {
    /// Starts a member with its data in `dir` and waits until it serves.
    #[track_caller]
    #[must_use]
    pub fn start(dir: &Path, flags: &[&str]) -> Server {
        launch(dir, flags).ready()
    }

    /// Returns its client URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Stops it with SIGTERM.
    ///
    /// # Panics
    /// If it does not stop cleanly.
    #[track_caller]
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
    #[track_caller]
    pub fn http(&self, method: &str, path: &str) -> HttpAnswer {
        http_at(self.address, method, path, &[], &[])
    }

    /// Sends a GET request.
    #[track_caller]
    pub fn get(&self, path: &str) -> HttpAnswer {
        self.http("GET", path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_parsed_from_the_ready_line() {
        let line = r#"{"message":"ready to serve client requests","addresses":"127.0.0.1:4711,[::1]:4711"}"#;
        assert_eq!(address_in(line), "127.0.0.1:4711".parse().ok());
        assert_eq!(address_in("{}"), None);
        assert_eq!(address_in("panicked"), None);
    }
}
