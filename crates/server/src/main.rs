//! The `portunus` binary: a server, and the commands about its gates.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use portunus_server::command::{Invocation, Portunus};
use portunus_server::config::Config;
use portunus_server::logging;
use portunus_server::member::stop::StopReason;

// Freed history goes back to the system, which glibc's allocator does not do.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Portunus::invoked(&arguments) {
        Ok(Invocation::Print(text)) => {
            // A reader that went away (`| head`) is no failure of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Invocation::Serve(config)) => serve(*config),
        Err(error) => fail(&*error),
    }
}

fn serve(config: Config) -> ExitCode {
    logging::init(&config.log);
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let running = match portunus_server::member::start(config) {
        Ok(running) => running,
        Err(error) => return fail(&error),
    };
    let member = std::sync::Arc::clone(&running.member);
    runtime.block_on(async {
        tokio::select! {
            name = asked_to_stop() => {
                tracing::info!(signal = name, "stopping");
                member.stop.stop(StopReason::Requested(name));
            }
            () = member.stop.stopped() => {}
        }
    });
    drop(member);
    match running.stop() {
        StopReason::Requested(_) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        StopReason::Fatal(reason) => {
            eprintln!("portunus: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for a signal that asks the process to end.
async fn asked_to_stop() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        // Without handlers the default applies: the process ends at once, which is safe.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

/// One line, with every cause.
fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    let mut message = format!("portunus: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    // Some errors are several, one per line.
    let message = message.lines().collect::<Vec<_>>().join("; ");
    eprintln!("{message}");
    ExitCode::FAILURE
}
