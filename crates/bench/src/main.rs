//! The `compare` binary.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use portunus_bench::command::Command;

fn main() -> ExitCode {
    // One thread: the server needs the other cores, and threads would only wake each other.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("compare: no runtime could be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(Command::parse().run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut message = format!("compare: {error}");
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
