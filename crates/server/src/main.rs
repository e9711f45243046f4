//! The `portunus` binary: a server, and the commands about its gates.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use portunus_server::command::{Invocation, Portunus};
use portunus_server::config::Config;
use portunus_server::handles::stop::StopReason;
use portunus_server::logging;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

// Freed history goes back to the system, which glibc's allocator does not do.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Options that the allocator reads when the process starts. Without the first, memory freed just
/// before a member is idle is kept until it is busy again; without the second, the buffer of
/// every answer above 8 MiB is new memory, which costs more than filling it.
// SAFETY: the name is the allocator's own and the text ends in a zero, as it expects.
#[cfg(feature = "jemalloc")]
#[unsafe(export_name = "_rjem_malloc_conf")]
static ALLOCATOR_OPTIONS: &[u8; 44] = b"background_thread:true,oversize_threshold:0\0";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Portunus::invoked(&arguments) {
        Ok(Invocation::Print(text)) => {
            // A closed pipe (`| head`) is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Invocation::Serve(config)) => serve(*config),
        Err(error) => fail(&*error),
    }
}

fn serve(config: Config) -> ExitCode {
    logging::init(&config.log);
    raise_open_files();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .thread_name("start")
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    // Installed before the start, so that a signal can stop a member that is ready.
    let mut signals = {
        let _context = runtime.enter();
        match Signals::listen() {
            Ok(signals) => signals,
            Err(error) => return fail(&error),
        }
    };
    let started = runtime.block_on(async {
        let starting = tokio::task::spawn_blocking(|| portunus_server::start::start(config));
        tokio::select! {
            started = starting => started,
            name = signals.next() => {
                // A start holds nothing that is not durable, and may take long.
                tracing::info!(signal = name, "stopped while starting");
                std::process::exit(0);
            }
        }
    });
    let running = match started {
        Ok(Ok(running)) => running,
        Ok(Err(error)) => return fail(&error),
        Err(error) => return fail(&error),
    };
    let member = std::sync::Arc::clone(&running.member);
    // A member that was removed while it was down applies the removal before it is ready.
    if !member.process.stop.is_stopping() {
        running.log_ready();
    }
    runtime.block_on(async {
        tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "stopping");
                // Clients are still served: pending requests go to the new leader.
                member.hand_leadership_over().await;
                member.process.stop.stop(StopReason::Requested(name));
            }
            () = member.process.stop.stopped() => {}
        }
    });
    // A fatal stop exits at once: waiting for threads could last forever, and none of them may
    // touch the data any more. The log has everything that was acknowledged.
    if let Some(StopReason::Fatal(reason)) = member.process.stop.reason() {
        logging::print_fatal(&format!("portunus: {reason}"));
        std::process::exit(1);
    }
    drop(member);
    match running.stop() {
        StopReason::Requested(reason) => {
            tracing::info!(reason, "stopped");
            ExitCode::SUCCESS
        }
        StopReason::Fatal(reason) => {
            logging::print_fatal(&format!("portunus: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// Raises the limit of file descriptors to the one that the system allows, as the runtime of Go
/// does for etcd. Where that fails, there are fewer connections.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The signals that ask the process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for a signal and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Prints the error with every cause in one line.
fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    let mut message = format!("portunus: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    // Some errors have several reasons, one per line.
    let message = message.lines().collect::<Vec<_>>().join("; ");
    logging::print_fatal(&message);
    ExitCode::FAILURE
}
