//! A program that runs until the test ends it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::Ran;

/// Longest wait for a line or for the end of a program.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A running program whose standard output is read line by line; killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts a program.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut err = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        Self {
            child,
            lines,
            errors: Some(errors),
        }
    }

    /// Returns the next line of its output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(WAIT_MAX) {
            Ok(line) => line,
            Err(error) => {
                let _ = self.child.kill();
                let errors = self.errors.take().map(|errors| errors.join().unwrap());
                panic!("no line: {error}; standard error: {errors:?}");
            }
        }
    }

    /// Returns the next line, if it is there within this time.
    pub fn line_within(&mut self, time: Duration) -> Option<String> {
        self.lines.recv_timeout(time).ok()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Sends a signal unless the program has ended.
    pub fn signal_if_running(&mut self, signal: Signal) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal(signal);
        }
    }

    /// Waits for its end and returns the rest of its output.
    #[track_caller]
    pub fn ended(mut self) -> Ran {
        let status = portunus_testkit::wait::until_blocking("end of the program", || {
            self.child.try_wait().unwrap().ok_or("it runs")
        });
        let err = self.errors.take().unwrap().join().unwrap();
        let out = self.lines.iter().map(|line| line + "\n").collect();
        Ran {
            success: status.success(),
            code: status.code(),
            out,
            err,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
