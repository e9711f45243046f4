//! `watch`: prints events as they happen, and runs a command for each if there is one.

use std::ffi::OsString;
use std::io::BufRead;
use std::os::unix::ffi::OsStringExt;

use clap::{Args, CommandFactory, FromArgMatches, Parser};
use portunus_client::{Client, ClientError, ProgressRequester, Watcher};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WatchResponse;
use portunus_proto::mvccpb::event::EventType;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::exit_status_text;
use super::watch_request::{WatchEnvironment, refuse_lone_separator};
use crate::cli::go_style;
use crate::globals::Globals;
use crate::go::quote::quote;
use crate::line_args;
use crate::outcome::{ExitWith, Failure, write_err, write_out};
use crate::print::{Answer, Printer};
use crate::required;

/// Flags of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    spec: WatchSpec,
    /// Read `watch …` and `progress` lines from standard input
    #[arg(short = 'i', long)]
    interactive: bool,
}

/// Flags that describe one watch.
#[derive(Debug, Default, Args)]
pub struct WatchFlags {
    /// Watch on a prefix
    #[arg(long)]
    pub prefix: bool,
    /// Revision to start watching
    #[arg(long, default_value_t = 0)]
    pub rev: i64,
    /// Get the previous key-value pair before the event happens
    #[arg(long)]
    pub prev_kv: bool,
    /// Get periodic watch progress notification from the server
    #[arg(long)]
    pub progress_notify: bool,
}

#[derive(Debug, Args)]
struct WatchSpec {
    /// Key or prefix, and the end of a range
    #[arg(value_name = "KEY [RANGE_END]")]
    arguments: Vec<OsString>,
    /// Command to run for each event, with ETCD_WATCH_* variables
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    flags: WatchFlags,
}

/// A `watch …` line of interactive mode, without its first word.
#[derive(Debug, Parser)]
#[command(
    no_binary_name = true,
    disable_help_flag = true,
    args_override_self = true
)]
struct WatchLine {
    #[command(flatten)]
    spec: WatchSpec,
}

/// Runs the command.
pub async fn run(
    args: WatchArgs,
    globals: &Globals,
    arguments: &[OsString],
) -> Result<(), Failure> {
    let environment = WatchEnvironment::read()?;
    // There is no timeout for the first answer.
    let mut options = globals.options()?;
    options.command_timeout = None;
    if args.interactive {
        let client = required::connect(globals, options).await?;
        return interactive(&client, &environment, globals.printer).await;
    }
    refuse_lone_separator(arguments.iter().map(|word| word.as_encoded_bytes()))?;
    let request = environment.request(&args.spec.arguments, &args.spec.flags)?;
    let client = required::connect(globals, options).await?;
    print_events(client.watch(request), globals.printer, &args.spec.command).await?;
    Err(Failure::new(
        ExitWith::Interrupted,
        "watch is canceled by the server",
    ))
}

async fn interactive(
    client: &Client,
    environment: &WatchEnvironment,
    printer: Printer,
) -> Result<(), Failure> {
    let mut lines = lines_of_stdin();
    let (failed, mut failures) = mpsc::channel(1);
    let mut watches: Vec<ProgressRequester> = Vec::new();
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            Some(failure) = failures.recv() => return Err(failure),
        };
        let Some(line) = line else {
            return Err(Failure::new(
                ExitWith::InvalidInput,
                "error reading watch request line: EOF",
            ));
        };
        let print_error = |problem: String| write_err(format!("{problem}\n").as_bytes());
        let words =
            line_args::split(&line).map_err(|error| Failure::new(ExitWith::InvalidInput, error))?;
        match words.first().map(Vec::as_slice) {
            Some(b"watch") if words.len() < 2 && !environment.has_key() => print_error(format!(
                "Invalid command {line} (command type or key is not provided)"
            )),
            Some(b"watch") => {
                let spec = parse_line(&words[1..])?;
                let request = environment.request(&spec.arguments, &spec.flags)?;
                let watcher = client.watch(request);
                watches.push(watcher.progress_requester());
                let failed = failed.clone();
                tokio::spawn(async move {
                    if let Err(failure) = print_events(watcher, printer, &spec.command).await {
                        // The receiver is gone only when the program is ending anyway.
                        let _ = failed.send(failure).await;
                    }
                });
            }
            Some(b"progress") => {
                for watch in &watches {
                    watch.request().await;
                }
            }
            Some(_) => print_error(format!("Invalid command {line} (only support watch)")),
            None => print_error(format!(
                "Invalid command: {line} (watch and progress supported)"
            )),
        }
    }
}

fn parse_line(words: &[Vec<u8>]) -> Result<WatchSpec, Failure> {
    refuse_lone_separator(words.iter())?;
    let words = words.iter().cloned().map(OsString::from_vec);
    let parsed = go_style(WatchLine::command())
        .try_get_matches_from(words)
        .and_then(|matches| WatchLine::from_arg_matches(&matches));
    match parsed {
        Ok(line) => Ok(line.spec),
        Err(error) => Err(Failure::new(ExitWith::BadArgs, error)),
    }
}

/// Reads lines in a separate thread, because reading a terminal cannot be cancelled.
fn lines_of_stdin() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Prints until the watch is over.
async fn print_events(
    mut watcher: Watcher,
    printer: Printer,
    command: &[OsString],
) -> Result<(), Failure> {
    loop {
        let response = match watcher.next().await {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(()),
            Err(error) => {
                report_canceled(&error);
                return Ok(());
            }
        };
        let shown = as_etcdctl_prints(&response);
        if shown.canceled {
            report_canceled(&cancel_error(&response));
        }
        let revision = shown.header.as_ref().map_or(0, |header| header.revision);
        let is_progress = shown.events.is_empty() && !shown.canceled && revision != 0;
        if is_progress {
            write_out(format!("progress notify: {revision}\n").as_bytes())?;
        }
        printer.print(&Answer::Watch(&shown))?;
        if !command.is_empty() {
            run_for_each(&shown, revision, command).await?;
        }
    }
}

fn report_canceled(error: &ClientError) {
    write_err(format!("watch was canceled ({error})\n").as_bytes());
}

fn cancel_error(response: &WatchResponse) -> ClientError {
    if response.compact_revision != 0 {
        return ClientError::Etcd(EtcdError::Compacted);
    }
    if response.cancel_reason.is_empty() {
        return ClientError::Etcd(EtcdError::FutureRevision);
    }
    ClientError::Canceled {
        reason: response.cancel_reason.clone(),
    }
}

/// A watch that was refused at once is shown without what the refusal carried, because that is
/// how etcd's client library passes it on.
fn as_etcdctl_prints(response: &WatchResponse) -> WatchResponse {
    if response.created && response.canceled {
        return WatchResponse {
            canceled: true,
            ..WatchResponse::default()
        };
    }
    response.clone()
}

async fn run_for_each(
    response: &WatchResponse,
    revision: i64,
    command: &[OsString],
) -> Result<(), Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    for event in &response.events {
        let kind = EventType::try_from(event.r#type).unwrap_or_default();
        let kv = event.kv.clone().unwrap_or_default();
        let status = Command::new(program)
            .args(arguments)
            .env("ETCD_WATCH_REVISION", revision.to_string())
            .env(
                "ETCD_WATCH_EVENT_TYPE",
                quote(kind.as_str_name().as_bytes()),
            )
            .env("ETCD_WATCH_KEY", quote(&kv.key))
            .env("ETCD_WATCH_VALUE", quote(&kv.value))
            .status()
            .await;
        let problem = match status {
            Ok(status) if status.success() => continue,
            Ok(status) => exit_status_text(status),
            Err(error) => error.to_string(),
        };
        let words: Vec<String> = command
            .iter()
            .map(|word| quote(word.as_encoded_bytes()))
            .collect();
        let line = format!("command [{}] error ({problem})\n", words.join(" "));
        write_err(line.as_bytes());
        return Err(Failure::reported(ExitWith::Error));
    }
    Ok(())
}
