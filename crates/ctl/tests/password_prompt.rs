//! Passwords typed at a terminal: not echoed, and the terminal is left as it was.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use rustix::io::ioctl_fionread;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use support::{free_address, portctl};

/// `portctl` that asks for a password at a terminal, which the test types at.
struct Typist {
    child: Child,
    keyboard: OwnedFd,
    terminal: File,
    modes_before: LocalModes,
}

impl Typist {
    fn start(arguments: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let path = ptsname(&keyboard, Vec::new()).unwrap();
        let terminal = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path.to_str().unwrap())
            .unwrap();
        let modes_before = tcgetattr(&terminal).unwrap().local_modes;
        assert!(modes_before.contains(LocalModes::ECHO | LocalModes::ICANON));
        let child = portctl()
            .args(["--dial-timeout=200ms", "--command-timeout=200ms"])
            .arg(format!("--endpoints={}", free_address()))
            .args(arguments)
            .stdin(terminal.try_clone().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            child,
            keyboard,
            terminal,
            modes_before,
        }
    }

    /// Waits for a question and types the answer.
    fn answer(&mut self, question: &str, keys: &[u8]) {
        let mut asked = vec![0; question.len()];
        let out = self.child.stdout.as_mut().unwrap();
        out.read_exact(&mut asked).unwrap();
        assert_eq!(String::from_utf8_lossy(&asked), question);
        let keyboard = self.keyboard.try_clone().unwrap();
        File::from(keyboard).write_all(keys).unwrap();
    }

    /// Waits for the end; returns the exit code, the rest of the output and the errors.
    fn end(self) -> (Option<i32>, String, String) {
        let output = self.child.wait_with_output().unwrap();
        let echoed_bytes = ioctl_fionread(&self.keyboard).unwrap();
        assert_eq!(echoed_bytes, 0, "the terminal echoed what was typed");
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert_eq!(modes, self.modes_before);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code();
        (code, text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn password_of_a_user_is_asked_for_without_echo() {
    let mut typist = Typist::start(&["--user=root", "get", "a"]);
    typist.answer("Password: ", b"wrong\x15secret\n");
    let (code, out, err) = typist.end();
    // It went on to log in, which needs a server.
    assert_eq!((code, out.as_str()), (Some(2), "\n"), "{err}");
    assert!(err.ends_with("Error: context deadline exceeded\n"), "{err}");
}

#[test]
fn new_password_is_asked_for_twice() {
    let mut typist = Typist::start(&["user", "add", "alice"]);
    typist.answer("Password of alice: ", b"one\n");
    let again = "\nType password of alice again for confirmation: ";
    typist.answer(again, b"other\n");
    let (code, out, err) = typist.end();
    assert_eq!((code, out.as_str()), (Some(128), "\n"));
    assert_eq!(err, "Error: given passwords are different\n");
}

#[test]
fn interrupt_at_the_question_restores_the_terminal() {
    let mut typist = Typist::start(&["--user=root", "get", "a"]);
    typist.answer("Password: ", b"secr\x03");
    let (code, out, err) = typist.end();
    assert_eq!((code, out.as_str(), err.as_str()), (Some(5), "\n", ""));
}

#[test]
fn command_with_wrong_arguments_asks_nothing() {
    let (code, out, err) = Typist::start(&["--user=root", "get"]).end();
    assert_eq!((code, out.as_str()), (Some(128), ""));
    assert!(err.contains("get command needs one argument"), "{err}");
}
