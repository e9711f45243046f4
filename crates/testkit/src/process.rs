//! A child process whose log is captured.
//!
//! Servers log to standard error. Every line is kept in memory, so that a test can wait for a
//! line and show the log when it fails. Dropping the value kills the process: no test leaves one
//! behind.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::wait::WAIT_MAX;

/// The time limit for the end of the log of a process that has ended. A process that it started
/// and that still runs has the same standard error.
const LOG_END_MAX: Duration = Duration::from_secs(5);
/// The pause between two looks at a process that is about to end.
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process and its log.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Arc<Log>,
}

#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    /// The lines so far.
    logged: Vec<String>,
    /// Whether the process has closed its standard error.
    is_complete: bool,
}

impl Log {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(&self, stderr: impl Read, mut file: Option<File>) {
        for line in BufReader::new(stderr).split(b'\n') {
            let Ok(line) = line else { break };
            if let Some(file) = &mut file {
                // The file is for people; a full disk must not end the test.
                let _ = file.write_all(&line).and_then(|()| file.write_all(b"\n"));
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            self.lines().logged.push(line);
            self.changed.notify_all();
        }
        self.lines().is_complete = true;
        self.changed.notify_all();
    }
}

impl Process {
    /// Starts a command.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Process {
        match Process::try_spawn(command, None) {
            Ok(process) => process,
            Err(error) => panic!("{command:?} cannot be started: {error}"),
        }
    }

    /// Starts a command. The log is also written to `log_file`, which is replaced.
    ///
    /// # Errors
    /// If the program cannot be started or the file cannot be created.
    pub fn try_spawn(command: &mut Command, log_file: Option<&Path>) -> io::Result<Process> {
        let file = log_file.map(File::create).transpose()?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = Arc::new(Log::default());
        if let Some(stderr) = child.stderr.take() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || log.collect(stderr, file));
        }
        Ok(Process { child, log })
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the process has ended; then its log is complete.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        // The status of an own child is always available.
        let status = self.child.try_wait().ok().flatten()?;
        let lines = self.log.lines();
        let completed = self
            .log
            .changed
            .wait_timeout_while(lines, LOG_END_MAX, |lines| !lines.is_complete);
        drop(completed);
        Some(status)
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.exit_status().is_some()
    }

    /// Waits for a line that contains `text`; `None` if the process ended without one.
    pub fn find_line(&self, text: &str) -> Option<String> {
        self.find_line_after(0, text)
    }

    /// Waits for a line that contains `text` after the first `known_lines`.
    fn find_line_after(&self, known_lines: usize, text: &str) -> Option<String> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut lines = self.log.lines();
        loop {
            let new = lines.logged.iter().skip(known_lines);
            if let Some(line) = new.into_iter().find(|line| line.contains(text)) {
                return Some(line.clone());
            }
            if lines.is_complete {
                return None;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no line with {text:?} in:\n{}",
                lines.logged.join("\n")
            );
            let waited = self.log.changed.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the first line so far that contains `text`.
    #[must_use]
    pub fn logged_line(&self, text: &str) -> Option<String> {
        let lines = self.log.lines();
        let mut lines = lines.logged.iter();
        lines.find(|line| line.contains(text)).cloned()
    }

    /// Returns whether a line that contains `text` was logged so far.
    #[must_use]
    pub fn has_logged(&self, text: &str) -> bool {
        self.logged_line(text).is_some()
    }

    /// Returns the number of lines so far.
    #[must_use]
    pub fn log_line_count(&self) -> usize {
        self.log.lines().logged.len()
    }

    /// Returns the log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lines().logged.join("\n")
    }

    /// Returns the last lines of the log.
    #[must_use]
    pub fn log_tail(&self, lines_max: usize) -> String {
        let lines = self.log.lines();
        let first = lines.logged.len().saturating_sub(lines_max);
        lines.logged[first..].join("\n")
    }

    /// Waits until the process ends by itself; returns its exit status and its log.
    ///
    /// # Panics
    /// If the process still runs after [`WAIT_MAX`].
    #[track_caller]
    #[must_use]
    pub fn ended(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + WAIT_MAX;
        let status = loop {
            if let Some(status) = self.exit_status() {
                break status;
            }
            let log = || self.log();
            assert!(Instant::now() < deadline, "still running:\n{}", log());
            std::thread::sleep(END_POLL_INTERVAL);
        };
        (status, self.log())
    }

    /// Sends SIGTERM and waits for the end of the process.
    #[track_caller]
    #[must_use]
    pub fn terminate(self) -> (ExitStatus, String) {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Sends a signal; SIGSTOP and SIGCONT pause the process. Has no effect on a process that
    /// has ended.
    pub fn signal(&self, signal: Signal) {
        if let Ok(id) = i32::try_from(self.child.id()) {
            // A child that has ended keeps its id until its status is read.
            let _ = nix::sys::signal::kill(Pid::from_raw(id), signal);
        }
    }

    /// Kills the process with SIGKILL, as a power failure would.
    pub fn kill(&mut self) {
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills the process as soon as it logs a line that contains `text` after the first
    /// `known_lines`.
    ///
    /// # Panics
    /// If the process ends without such a line.
    #[track_caller]
    pub fn kill_at_line(mut self, known_lines: usize, text: &str) {
        let line = self.find_line_after(known_lines, text);
        assert!(line.is_some(), "no {text:?} in:\n{}", self.log());
        self.kill();
    }

    /// Returns the resident memory.
    ///
    /// # Panics
    /// If the process has ended.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib: u64 = line
            .and_then(|line| line.split_whitespace().nth(1))
            .and_then(|number| number.parse().ok())
            .expect("a process that runs has resident memory");
        kib * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::spawn(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn process_that_ends_returns_its_status_and_its_log() {
        let (status, log) = shell("echo one >&2; echo two >&2; exit 3").ended();
        assert_eq!((status.code(), log.as_str()), (Some(3), "one\ntwo"));
    }

    #[test]
    fn line_is_found_while_the_process_runs_and_missing_after_its_end() {
        let process = shell("echo ready >&2; exec sleep 600");
        assert_eq!(process.find_line("read").as_deref(), Some("ready"));
        assert!(process.has_logged("ready") && !process.has_logged("done"));
        assert_eq!(process.log_line_count(), 1);
        assert_eq!(shell("echo other >&2").find_line("ready"), None);
    }

    #[test]
    fn process_is_killed_when_dropped() {
        let process = shell("echo ready >&2; exec sleep 600");
        process.find_line("ready").unwrap();
        let id = Pid::from_raw(i32::try_from(process.id()).unwrap());
        drop(process);
        assert!(nix::sys::signal::kill(id, None).is_err());
    }

    #[test]
    fn terminated_process_runs_its_handler() {
        let process = shell(
            "trap 'echo stopping >&2; exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done",
        );
        process.find_line("ready").unwrap();
        let (status, log) = process.terminate();
        assert!(status.success() && log.ends_with("stopping"), "{log}");
    }

    #[test]
    fn log_is_copied_to_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "of an earlier start").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo two >&2"]);
        let process = Process::try_spawn(&mut command, Some(&path)).unwrap();
        let (_, log) = process.ended();
        assert_eq!(log, "one\ntwo");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn missing_program_is_an_error() {
        assert!(Process::try_spawn(&mut Command::new("/nowhere/server"), None).is_err());
    }
}
