//! The server process: starting it, waiting until it is ready, killing it.
//!
//! It listens on a port that the system chooses and logs the address. Dropping the value kills
//! the process.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::TortureError;

/// The time limit for a start.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The log message of a member that is ready for clients.
const READY: &str = "ready to serve client requests";

/// The log field with the addresses.
const ADDRESSES: &str = "\"addresses\":\"";

/// Log lines in an error.
const LOG_LINES_SHOWN: usize = 10;

/// A server process, which may not be ready yet.
pub(super) struct Member {
    process: Child,
    log: PathBuf,
}

impl Member {
    /// Starts the binary on a data directory; its log goes to a file beside it.
    pub(super) fn start(
        portunus: &Path,
        data_dir: &Path,
        flags: &[&str],
    ) -> Result<Member, TortureError> {
        let log = log_path(data_dir);
        let failed = |source: io::Error| TortureError::Start {
            path: portunus.to_owned(),
            source,
        };
        // Only the log of the newest start is kept.
        let stderr = File::create(&log).map_err(failed)?;
        let mut command = Command::new(portunus);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        let process = command
            .arg(format!("--data-dir={}", data_dir.display()))
            .arg("--listen-client-urls=http://127.0.0.1:0")
            .arg("--advertise-client-urls=http://127.0.0.1:2379")
            .arg("--listen-peer-urls=http://127.0.0.1:0")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(failed)?;
        Ok(Member { process, log })
    }

    /// Waits until the member is ready; returns its address.
    pub(super) async fn ready(&mut self) -> Result<SocketAddr, TortureError> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            // The last line may be incomplete.
            let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(line) = whole.lines().find(|line| line.contains(READY)) {
                return address_in(line).ok_or_else(|| TortureError::NotReady {
                    log: line.to_owned(),
                });
            }
            let has_ended = !matches!(self.process.try_wait(), Ok(None));
            if has_ended || Instant::now() > deadline {
                return Err(TortureError::NotReady {
                    log: last_lines(&log),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Kills the process with SIGKILL. It is an error if the process has ended before.
    pub(super) fn kill(mut self) -> Result<(), TortureError> {
        if let Ok(Some(status)) = self.process.try_wait() {
            return Err(TortureError::Ended {
                status: status.to_string(),
                log: last_lines(&std::fs::read_to_string(&self.log).unwrap_or_default()),
            });
        }
        // Dropping the value kills the process.
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Fails if the process has ended already; other errors cannot be handled here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the path of the process's log.
pub(super) fn log_path(data_dir: &Path) -> PathBuf {
    data_dir.with_extension("log")
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(ADDRESSES)?;
    let end = rest.find([',', '"'])?;
    rest[..end].trim().parse().ok()
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_parsed_from_the_ready_line() {
        let line = r#"{"message":"ready to serve client requests","addresses":"127.0.0.1:4711,[::1]:4711"}"#;
        assert_eq!(address_in(line), "127.0.0.1:4711".parse().ok());
        assert_eq!(address_in("{}"), None);
    }
}
