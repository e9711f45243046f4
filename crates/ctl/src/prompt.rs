//! Reading a password: from the terminal without echo, or from a pipe.
//!
//! The prompt goes to standard output, as with etcdctl. While the terminal waits for a password it
//! delivers single keys instead of lines and signals, so that an interrupt cannot leave it without
//! echo.

use std::io::{self, BufRead};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcsetattr,
};

use crate::outcome::{ExitWith, Failure, write_out};

/// Keys of a terminal.
const INTERRUPT: u8 = 0x03;
const END_OF_INPUT: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const KILL_LINE: u8 = 0x15;
const DELETE: u8 = 0x7f;

/// Asks for a password. Nothing at the end of the input is an empty one.
///
/// # Errors
/// If the user interrupts it or the input cannot be read.
pub fn ask_password(prompt: &str) -> Result<String, Failure> {
    let mut input = io::stdin().lock();
    let silenced = SilentTerminal::new().map_err(failed)?;
    write_out(prompt.as_bytes())?;
    let line = match &silenced {
        Some(_) => read_keys(&mut input),
        None => read_line(&mut input).map(Some),
    };
    drop(silenced);
    write_out(b"\n")?;
    let Some(line) = line.map_err(failed)? else {
        return Err(Failure::reported(ExitWith::Interrupted));
    };
    Ok(text_of(&line)?.trim().to_owned())
}

/// Reads a password without a prompt: the first word of a line, as Go's `Scanf` reads it.
///
/// # Errors
/// If the word is not UTF-8. An empty line, or none, is an empty password.
pub fn scan_password() -> Result<String, Failure> {
    let line = read_line(io::stdin().lock()).unwrap_or_default();
    let line = text_of(&line)?;
    Ok(line.split_whitespace().next().unwrap_or("").to_owned())
}

fn failed(error: io::Error) -> Failure {
    let message = format!("failed during password entry: {error}");
    Failure::new(ExitWith::Error, message)
}

fn text_of(line: &[u8]) -> Result<&str, Failure> {
    str::from_utf8(line)
        .map_err(|_| Failure::new(ExitWith::BadArgs, "the password is not valid UTF-8"))
}

/// Reads up to the end of a line, and nothing after it: a command may read more.
fn read_line(mut input: impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}

/// Reads keys up to the end of a line; `None` after an interrupt.
fn read_keys(input: impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    for key in input.bytes() {
        match key? {
            b'\n' | b'\r' | END_OF_INPUT => break,
            INTERRUPT => return Ok(None),
            KILL_LINE => line.clear(),
            BACKSPACE | DELETE => remove_last_character(&mut line),
            other => line.push(other),
        }
    }
    Ok(Some(line))
}

fn remove_last_character(line: &mut Vec<u8>) {
    let is_continuation = |byte: u8| byte & 0b1100_0000 == 0b1000_0000;
    while line.pop().is_some_and(is_continuation) {}
}

/// The terminal at standard input without echo; restored when dropped.
struct SilentTerminal {
    before: Termios,
}

impl SilentTerminal {
    /// Turns echo off; `None` if standard input is not a terminal.
    fn new() -> io::Result<Option<SilentTerminal>> {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut silent = before.clone();
        silent.local_modes -=
            LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &silent)?;
        Ok(Some(SilentTerminal { before }))
    }
}

impl Drop for SilentTerminal {
    fn drop(&mut self) {
        // There is nothing to do about a terminal that is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(typed: &[u8]) -> Option<Vec<u8>> {
        read_keys(typed).unwrap()
    }

    #[test]
    fn keys_edit_the_line() {
        for (typed, line) in [
            (&b"secret\nrest"[..], &b"secret"[..]),
            (b"secret\r", b"secret"),
            (b"sex\x7fcret\x04", b"secret"),
            ("sö\x7fecret".as_bytes(), b"secret"),
            (b"wrong\x15secret\n", b"secret"),
            (b"\x08\x7f\n", b""),
            (b"", b""),
        ] {
            assert_eq!(keys(typed).as_deref(), Some(line), "{typed:?}");
        }
    }

    #[test]
    fn interrupt_ends_without_a_password() {
        assert_eq!(keys(b"secr\x03et\n"), None);
    }
}
