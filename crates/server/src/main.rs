//! The `portunus` binary.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use portunus_server::command::Portunus;

fn main() -> ExitCode {
    match Portunus::parse().run() {
        Ok(text) => {
            // A reader that went away (`| head`) is no failure of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let mut message = format!("portunus: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                message.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
