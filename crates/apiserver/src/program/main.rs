//! The program `portunus-apiserver`.
//!
//! ```text
//!  flags ──▶ versions ──▶ resources ──▶ security ──▶ store ──▶ socket ──▶ serve ──▶ drain
//!    └─ dev ──▶ certificates, store member ──▶ the same steps
//! ```
//!
//! Everything that flags can get wrong is found before a socket or a connection is opened.

mod dev;
mod duration;
mod flags;
mod kube_texts;
mod logging;
mod open_files;
mod security;
mod serve;
mod settings;
mod signals;
mod store;
mod versions;

use std::error::Error;
use std::process::ExitCode;

use flags::{Command, CommandLine};

fn main() -> ExitCode {
    let line = match CommandLine::read() {
        Ok(line) => line,
        Err(answer) => return answer.print(),
    };
    let ended = match line.command {
        None => serve::run(&line.server),
        Some(Command::Dev(flags)) => dev::run(&flags),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

/// Prints an error with its causes.
fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    let mut message = format!("portunus-apiserver: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    eprintln!("{message}");
    ExitCode::FAILURE
}
