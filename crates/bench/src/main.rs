//! The `compare` binary.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use portunus_bench::command::Command;
use tokio::signal::unix::{SignalKind, signal};

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
    let command = Command::parse();
    let outcome = runtime.block_on(async {
        // An end from outside drops what runs, and servers end with their values.
        tokio::select! {
            outcome = command.run() => Some(outcome),
            () = told_to_end() => None,
        }
    });
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        None => {
            eprintln!("compare: told to end; all servers are stopped");
            ExitCode::FAILURE
        }
        Some(Err(error)) => {
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

/// Ends with SIGINT or SIGTERM.
async fn told_to_end() {
    let signals = signal(SignalKind::interrupt()).and_then(|interrupt| {
        let terminate = signal(SignalKind::terminate())?;
        Ok((interrupt, terminate))
    });
    // Without them this process ends as any other does.
    let Ok((mut interrupt, mut terminate)) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
