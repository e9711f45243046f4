//! `check`: `check perf` is whether a cluster carries a load it should carry, with etcdctl's loads
//! and limits; `check_datascale.rs` and `check_kubernetes.rs` have the other checks.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use portunus_client::{Client, Options};
use portunus_proto::etcdserverpb::{CompactionRequest, DeleteRangeRequest, RangeRequest};

use super::check_datascale::{self, DatascaleArgs};
use super::check_kubernetes::{self, KubernetesArgs};
use super::keys::prefix_end;
use super::load::{self, Load, Summary};
use crate::globals::{Globals, open};
use crate::go::quote::quote;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::signals::Signals;
use crate::terminal::Progress;

/// How long cleaning up may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Less than this share of the asked-for writes is a failure.
const THROUGHPUT_SHARE_MIN: f64 = 0.9;
/// No request may take longer.
const SLOWEST_SECONDS_MAX: f64 = 0.5;
/// Requests may not differ more.
const STDDEV_SECONDS_MAX: f64 = 0.1;

/// What to check.
#[derive(Debug, Subcommand)]
pub enum CheckCommand {
    /// Checks the performance of the cluster
    Perf(PerfArgs),
    /// Checks the memory that a server needs for the data of a load
    Datascale(DatascaleArgs),
    /// Checks the rules that Kubernetes needs of its store
    Kubernetes(KubernetesArgs),
}

/// Flags of `check perf`.
#[derive(Debug, Args)]
pub struct PerfArgs {
    /// Load: s(small), m(medium), l(large), xl(xLarge); differs in clients and throughput
    #[arg(long, default_value = "s")]
    load: String,
    /// Prefix of the keys that are written, and deleted afterwards
    #[arg(long, default_value = "/etcdctl-check-perf/")]
    prefix: String,
    /// Compact storage with last revision after test is finished
    #[arg(long)]
    auto_compact: bool,
    /// Defragment storage after test is finished
    #[arg(long)]
    auto_defrag: bool,
}

/// Runs the command.
pub async fn run(command: CheckCommand, globals: &Globals) -> Result<(), Failure> {
    match command {
        CheckCommand::Perf(args) => run_perf(args, globals).await,
        CheckCommand::Datascale(args) => check_datascale::run(args, globals).await,
        CheckCommand::Kubernetes(args) => check_kubernetes::run(args, globals).await,
    }
}

async fn run_perf(args: PerfArgs, globals: &Globals) -> Result<(), Failure> {
    let Some(load) = Load::named(&args.load) else {
        let message = format!("unknown load option {}", args.load);
        return Err(Failure::new(ExitWith::BadFeature, message));
    };
    let client = globals.connect().await?;
    refuse_used_prefix(&client, &args.prefix).await?;

    let mut signals = Signals::new()?;
    let mut bar = Progress::new("writing");
    let progress = |done_s: u64, all_s: u64| bar.part(done_s, all_s, |s| format!("{s} s"));
    let options = globals.options()?;
    let running = load::run(load, &options, &args.prefix, progress);
    let summary = tokio::select! {
        summary = running => summary?,
        failure = interrupted(&mut signals, globals, &args.prefix) => return Err(failure),
    };
    drop(bar);
    clean_up(globals, &args.prefix, args.auto_compact).await?;
    if args.auto_defrag {
        defragment(globals).await?;
    }
    let (verdict, passed) = evaluate(&summary, load.writes_per_second);
    write_out(verdict.as_bytes())?;
    if passed {
        Ok(())
    } else {
        Err(Failure::reported(ExitWith::Error))
    }
}

/// Waits for a signal and deletes the keys of the check then.
pub(super) async fn interrupted(signals: &mut Signals, globals: &Globals, prefix: &str) -> Failure {
    signals.received().await;
    match clean_up(globals, prefix, false).await {
        Ok(()) => Failure::new(ExitWith::Interrupted, "interrupted; the keys were deleted"),
        Err(failure) => failure,
    }
}

pub(super) async fn refuse_used_prefix(client: &Client, prefix: &str) -> Result<(), Failure> {
    let request = RangeRequest {
        key: prefix.as_bytes().to_vec().into(),
        range_end: prefix_end(prefix.as_bytes()),
        limit: 1,
        ..RangeRequest::default()
    };
    if client.range(request).await?.kvs.is_empty() {
        return Ok(());
    }
    let quoted = quote(prefix.as_bytes());
    let message =
        format!("prefix {quoted} has keys. Delete with 'portctl del --prefix {prefix}' first");
    Err(Failure::new(ExitWith::InvalidInput, message))
}

async fn connect_with_cleanup_timeout(
    globals: &Globals,
    endpoints: Vec<String>,
) -> Result<Client, Failure> {
    let options = Options {
        endpoints,
        command_timeout: Some(CLEANUP_TIMEOUT),
        ..globals.options()?
    };
    open(options).await
}

/// Deletes the keys of a check, and compacts the store if `compact`.
pub(super) async fn clean_up(
    globals: &Globals,
    prefix: &str,
    compact: bool,
) -> Result<(), Failure> {
    let client = connect_with_cleanup_timeout(globals, globals.client.endpoints.clone()).await?;
    let request = DeleteRangeRequest {
        key: prefix.as_bytes().to_vec().into(),
        range_end: prefix_end(prefix.as_bytes()),
        prev_kv: false,
    };
    let deleted = match client.delete_range(request).await {
        Ok(deleted) => deleted,
        Err(error) => {
            let line = format!("FAIL: Cleanup failed during key deletion: ERROR({error})\n");
            return write_out(line.as_bytes());
        }
    };
    if compact {
        let revision = deleted.header.map_or(0, |header| header.revision);
        write_out(format!("Compacting with revision {revision}\n").as_bytes())?;
        let physical = true;
        client
            .compact(CompactionRequest { revision, physical })
            .await?;
        write_out(format!("Compacted with revision {revision}\n").as_bytes())?;
    }
    Ok(())
}

pub(super) async fn defragment(globals: &Globals) -> Result<(), Failure> {
    for endpoint in &globals.client.endpoints {
        let quoted = quote(endpoint.as_bytes());
        write_out(format!("Defragmenting {quoted}\n").as_bytes())?;
        connect_with_cleanup_timeout(globals, vec![endpoint.clone()])
            .await?
            .defragment()
            .await?;
        write_out(format!("Defragmented {quoted}\n").as_bytes())?;
    }
    Ok(())
}

/// etcdctl's verdict, line by line, and whether it is a pass.
fn evaluate(summary: &Summary, writes_per_second_wanted: u32) -> (String, bool) {
    let mut lines = Vec::new();
    let mut passed = true;
    let mut check = |good: bool, pass: String, fail: String| {
        passed &= good;
        lines.push(if good { format!("PASS: {pass}") } else { fail });
    };
    let rate = summary.writes_per_second;
    let rate_shown = rate as u64 + 1;
    check(
        rate / f64::from(writes_per_second_wanted) > THROUGHPUT_SHARE_MIN,
        format!("Throughput is {rate_shown} writes/s"),
        format!("FAIL: Throughput too low: {rate_shown} writes/s"),
    );
    let slowest = summary.slowest_seconds;
    check(
        slowest <= SLOWEST_SECONDS_MAX,
        format!("Slowest request took {slowest:.6}s"),
        format!("Slowest request took too long: {slowest:.6}s"),
    );
    let stddev = summary.stddev_seconds;
    check(
        stddev <= STDDEV_SECONDS_MAX,
        format!("Stddev is {stddev:.6}s"),
        format!("Stddev too high: {stddev:.6}s"),
    );
    if !summary.errors.is_empty() {
        passed = false;
        lines.splice(0..0, error_lines(&summary.errors));
    }
    lines.push(if passed { "PASS" } else { "FAIL" }.to_owned());
    (lines.join("\n") + "\n", passed)
}

/// Returns etcdctl's lines for a check with failed requests.
pub(super) fn error_lines(errors: &BTreeMap<String, u64>) -> Vec<String> {
    let each = errors
        .iter()
        .map(|(error, count)| format!("FAIL: ERROR({error}) -> {count}"));
    ["FAIL: too many errors".to_owned()]
        .into_iter()
        .chain(each)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(rate: f64, slowest: f64, stddev: f64) -> Summary {
        Summary {
            writes_per_second: rate,
            slowest_seconds: slowest,
            stddev_seconds: stddev,
            errors: BTreeMap::new(),
        }
    }

    #[test]
    fn check_passes_within_all_limits() {
        let (verdict, passed) = evaluate(&summary(149.2, 0.012_345, 0.001), 150);
        assert_eq!(
            verdict,
            "PASS: Throughput is 150 writes/s\n\
             PASS: Slowest request took 0.012345s\n\
             PASS: Stddev is 0.001000s\n\
             PASS\n"
        );
        assert!(passed);
    }

    #[test]
    fn each_exceeded_limit_fails_with_etcdctl_text() {
        for (summary, line) in [
            (
                summary(135.0, 0.1, 0.01),
                "FAIL: Throughput too low: 136 writes/s\n",
            ),
            (
                summary(150.0, 0.51, 0.01),
                "\nSlowest request took too long: 0.510000s\n",
            ),
            (summary(150.0, 0.1, 0.11), "\nStddev too high: 0.110000s\n"),
        ] {
            let (verdict, passed) = evaluate(&summary, 150);
            assert!(
                verdict.contains(line) && verdict.ends_with("\nFAIL\n"),
                "{verdict}"
            );
            assert!(!passed);
        }
    }

    #[test]
    fn errors_are_listed_first_and_fail_the_check() {
        let mut summary = summary(150.0, 0.1, 0.01);
        summary
            .errors
            .insert("context deadline exceeded".to_owned(), 3);
        let (verdict, passed) = evaluate(&summary, 150);
        assert!(verdict.starts_with(
            "FAIL: too many errors\nFAIL: ERROR(context deadline exceeded) -> 3\nPASS: Throughput"
        ));
        assert!(!passed);
    }
}
