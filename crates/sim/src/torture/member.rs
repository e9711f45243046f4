//! The server process: starting it, waiting until it is ready, killing it.
//!
//! It listens on a port that the system chooses and logs the address. Dropping the value kills
//! the process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portunus_testkit::process::Process;
use portunus_testkit::program::{Kind, Program};
use portunus_testkit::standalone::{READY, address_in, member_flags};

use super::TortureError;

/// The time limit for a start.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Log lines in an error.
const LOG_LINES_SHOWN: usize = 10;

/// A server process, which may not be ready yet.
pub(super) struct Member {
    process: Process,
}

impl Member {
    /// Starts the binary on a data directory; its log goes to a file beside it.
    pub(super) fn start(
        portunus: &Path,
        data_dir: &Path,
        flags: &[&str],
    ) -> Result<Member, TortureError> {
        let program = Program {
            kind: Kind::Portunus,
            path: portunus.to_owned(),
        };
        let mut command = program.command();
        command.args(member_flags(data_dir)).args(flags);
        // Only the log of the newest start is kept.
        let process = Process::try_spawn(&mut command, Some(&log_path(data_dir)));
        let process = process.map_err(|source| TortureError::Start {
            path: program.path,
            source,
        })?;
        Ok(Member { process })
    }

    /// Waits until the member is ready; returns its address.
    pub(super) async fn ready(&mut self) -> Result<SocketAddr, TortureError> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            // Before the log is searched, which is complete only after the end of the process.
            let has_ended = self.process.has_ended();
            if let Some(line) = self.process.logged_line(READY) {
                return address_in(&line).ok_or(TortureError::NotReady { log: line });
            }
            if has_ended || Instant::now() > deadline {
                return Err(TortureError::NotReady {
                    log: self.process.log_tail(LOG_LINES_SHOWN),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Kills the process with SIGKILL. It is an error if the process has ended before.
    pub(super) fn kill(mut self) -> Result<(), TortureError> {
        match self.process.exit_status() {
            Some(status) => Err(TortureError::Ended {
                status: status.to_string(),
                log: self.process.log_tail(LOG_LINES_SHOWN),
            }),
            None => {
                self.process.kill();
                Ok(())
            }
        }
    }
}

/// Returns the path of the process's log.
fn log_path(data_dir: &Path) -> PathBuf {
    data_dir.with_extension("log")
}
