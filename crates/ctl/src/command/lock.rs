//! `lock`: holds a named lock until a signal, or while a command runs.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use clap::Args;
use portunus_client::concurrency::{ConcurrencyError, Lock, Mutex, Session, SessionOptions};
use portunus_client::{Client, Options};
use portunus_proto::etcdserverpb::RangeRequest;
use tokio::process::Command;

use super::exit_status_text;
use super::keys::argument_bytes;
use crate::globals::Globals;
use crate::go::quote::quote;
use crate::outcome::{ExitWith, Failure, write_err};
use crate::print::Answer;
use crate::required;
use crate::signals::Signals;

/// Flags of `lock`.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// Name of the lock, and a command to run while it is held, with ETCD_LOCK_KEY and ETCD_LOCK_REV
    #[arg(value_name = "NAME [COMMAND...]")]
    arguments: Vec<OsString>,
    /// Seconds after which the lock of a holder that died is free
    #[arg(long, default_value_t = 10)]
    ttl: i64,
}

/// Runs the command.
pub async fn run(args: LockArgs, globals: &Globals) -> Result<(), Failure> {
    let Some((name, command)) = args.arguments.split_first() else {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "lock takes a lock name argument and an optional command to execute",
        ));
    };
    let client = connect_without_timeout(globals).await?;
    // As with etcdctl, a TTL that is none leaves the default.
    let options = match args.ttl {
        ..=0 => SessionOptions::default(),
        ttl => SessionOptions::with_ttl(ttl),
    };
    // Until there is something to release, a signal ends the program.
    let session = Session::start(&client, options).await?;
    let mut signals = Signals::new()?;
    let mutex = Mutex::new(&session, argument_bytes(name));
    let lock = tokio::select! {
        lock = mutex.lock() => lock.map_err(failed)?,
        () = signals.received() => {
            // Also removes the key that waits for the lock.
            let _ = session.close().await;
            return Err(canceled());
        }
    };
    let ended = match command {
        [] => hold(&client, &lock, &mut signals, globals).await,
        command => run_under(&lock, command).await,
    };
    let released = lock.unlock().await;
    let _ = session.close().await;
    ended?;
    match released {
        // A command that lost its lock meanwhile has been told so.
        Ok(_) | Err(ConcurrencyError::SessionLost(_) | ConcurrencyError::KeyDeleted { .. }) => {
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}

/// Locks and leaderships are waited for without limit.
pub(super) async fn connect_without_timeout(globals: &Globals) -> Result<Client, Failure> {
    let options = Options {
        command_timeout: None,
        ..globals.options()?
    };
    required::connect(globals, options).await
}

/// Go's error of a wait that a signal has ended.
pub(super) fn canceled() -> Failure {
    Failure::new(ExitWith::Error, "context canceled")
}

pub(super) fn failed(error: ConcurrencyError) -> Failure {
    match error {
        ConcurrencyError::Client(error) => error.into(),
        error => Failure::new(ExitWith::Error, error),
    }
}

/// Prints the key of the lock and waits for a signal.
async fn hold(
    client: &Client,
    lock: &Lock,
    signals: &mut Signals,
    globals: &Globals,
) -> Result<(), Failure> {
    let expired = |message: &str| Err(Failure::new(ExitWith::Error, message));
    let key = client.range(RangeRequest {
        key: lock.key().clone(),
        ..RangeRequest::default()
    });
    let key = tokio::select! {
        key = key => key?,
        () = signals.received() => return Err(canceled()),
    };
    if key.kvs.is_empty() {
        return expired("lock lost on init");
    }
    globals.printer.print(&Answer::Range(&key))?;
    tokio::select! {
        () = signals.received() => Ok(()),
        _ = lock.session().lost() => expired("session expired"),
    }
}

/// Runs a command; the lock is held until it has ended, whatever signals arrive.
async fn run_under(lock: &Lock, command: &[OsString]) -> Result<(), Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    let running = Command::new(program)
        .args(arguments)
        .env("ETCD_LOCK_KEY", std::ffi::OsStr::from_bytes(lock.key()))
        .env("ETCD_LOCK_REV", lock.header().revision.to_string())
        .stdin(Stdio::null())
        .spawn();
    let mut running = running.map_err(|error| not_started(program, &error))?;
    let status = tokio::select! {
        status = running.wait() => status,
        lost = lock.session().lost() => {
            let line = format!("the lock was lost while the command ran: {lost}\n");
            write_err(line.as_bytes());
            running.wait().await
        }
    };
    let status = status?;
    if status.success() {
        return Ok(());
    }
    // Go's exit code of a command that a signal has ended.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let exit = ExitWith::CodeOfCommand(code.unwrap_or(u8::MAX));
    Err(Failure::new(exit, exit_status_text(status)))
}

/// Returns Go's text for a program that cannot be started.
fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let is_path = program.as_bytes().contains(&b'/');
    let message = match error.kind() {
        io::ErrorKind::NotFound if !is_path => {
            let program = quote(program.as_bytes());
            format!("exec: {program}: executable file not found in $PATH")
        }
        _ => {
            let program = program.to_string_lossy();
            format!("fork/exec {program}: {}", crate::offline::go_text(error))
        }
    };
    Failure::new(ExitWith::Error, message)
}
