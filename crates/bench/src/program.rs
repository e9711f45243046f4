//! What the programs of this crate share: a runtime, a stop by signals, and errors with causes.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Runs a command on one thread until it ends or a signal stops it. Prints its error to stderr.
pub fn run<E: Error>(name: &str, command: impl Future<Output = Result<(), E>>) -> ExitCode {
    // One thread: the server needs the other cores, and more threads cost wake-ups.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: no runtime could be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        // A signal drops the running command, which stops its servers.
        tokio::select! {
            outcome = command => Some(outcome),
            () = termination_signal() => None,
        }
    });
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        None => {
            eprintln!("{name}: terminated by a signal; all servers are stopped");
            ExitCode::FAILURE
        }
        Some(Err(error)) => {
            eprintln!("{name}: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    message
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
