//! The `compare-apiserver` binary.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use portunus_bench::apiserver::command::Command;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    // One thread: the server needs the other cores, and more threads cost wake-ups.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("compare-apiserver: no runtime could be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let command = Command::parse();
    let outcome = runtime.block_on(async {
        // A signal drops the running command, which stops its servers.
        tokio::select! {
            outcome = command.run() => Some(outcome),
            () = termination_signal() => None,
        }
    });
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        None => {
            eprintln!("compare-apiserver: terminated by a signal; all servers are stopped");
            ExitCode::FAILURE
        }
        Some(Err(error)) => {
            let mut message = format!("compare-apiserver: {error}");
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

/// Returns at SIGINT or SIGTERM.
async fn termination_signal() {
    let signals = signal(SignalKind::interrupt()).and_then(|interrupt| {
        let terminate = signal(SignalKind::terminate())?;
        Ok((interrupt, terminate))
    });
    // Without handlers the signals end the process.
    let Ok((mut interrupt, mut terminate)) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
