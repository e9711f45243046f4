//! `check kubernetes`: whether a store keeps the contract that Kubernetes has with its store.

use bytes::Bytes;
use clap::Args;
use portunus_client::kubernetes::contract::{self, Outcome, Report, RuleReport, RunError};
use portunus_client::kubernetes::{Error, Kubernetes};

use super::check::interrupted;
use crate::globals::Globals;
use crate::go::json::{self, Object};
use crate::outcome::{ExitWith, Failure, write_out};
use crate::print::Format;
use crate::signals::Signals;
use crate::terminal::{Colour, Progress, is_coloured_stdout};

/// Flags of `check kubernetes`.
#[derive(Debug, Args)]
pub struct KubernetesArgs {
    /// Prefix of the keys that are written, and deleted afterwards; ends with a slash
    #[arg(long, default_value = "/portunus-check-kubernetes/")]
    prefix: String,
    /// Skip the rules that compact the store: they remove the history of all keys
    #[arg(long)]
    keep_history: bool,
    /// Check only this rule; may be repeated
    #[arg(long)]
    rule: Vec<String>,
}

/// Runs the command.
pub async fn run(args: KubernetesArgs, globals: &Globals) -> Result<(), Failure> {
    let format = globals.printer.format;
    if !matches!(format, Format::Simple | Format::Json) {
        let message = "check kubernetes prints only the formats simple and json";
        return Err(Failure::new(ExitWith::BadFeature, message));
    }
    let store = Kubernetes::new(globals.connect().await?);
    let options = contract::Options {
        prefix: Bytes::copy_from_slice(args.prefix.as_bytes()),
        compaction: !args.keep_history,
        only: args.rule,
        ..contract::Options::default()
    };
    let rules_all = match options.only.len() {
        0 => contract::rules().len() as u64,
        chosen => chosen as u64,
    };
    let mut signals = Signals::new()?;
    let mut bar = Progress::new("checking");
    let mut done = 0;
    let mut written = Ok(());
    let progress = |rule: &RuleReport| {
        done += 1;
        if format == Format::Simple && written.is_ok() {
            bar.clear();
            written = write_out(line(rule, is_coloured_stdout()).as_bytes());
        }
        bar.part(done, rules_all, |rules| format!("{rules} rules"));
    };
    let report = tokio::select! {
        report = contract::run(&store, &store, &options, progress) => report.map_err(refused)?,
        failure = interrupted(&mut signals, globals, &args.prefix) => return Err(failure),
    };
    drop(bar);
    written?;
    write_out(
        match format {
            Format::Json => json_of(&report, &args.prefix).into_bytes(),
            _ => summary(&report).into_bytes(),
        }
        .as_slice(),
    )?;
    match report.is_passed() {
        true => Ok(()),
        false => Err(Failure::reported(ExitWith::Error)),
    }
}

fn refused(error: RunError) -> Failure {
    let exit = match &error {
        RunError::PrefixInUse { .. } => ExitWith::InvalidInput,
        RunError::Prefix { .. } | RunError::UnknownRule { .. } => ExitWith::BadArgs,
        _ => ExitWith::Error,
    };
    match error {
        RunError::Store(Error::Client(error)) => error.into(),
        RunError::Store(error) => Failure::new(exit, error),
        error => Failure::new(exit, error),
    }
}

/// Returns the line of a rule, with the reason on a second one.
fn line(rule: &RuleReport, is_coloured: bool) -> String {
    let (word, reason) = word_and_reason(&rule.outcome);
    let colour = match word {
        "pass" => Colour::Green,
        "fail" => Colour::Red,
        _ => Colour::Yellow,
    };
    let word = colour.paint(&word.to_uppercase(), is_coloured);
    let mut line = format!("{word} {}: {}\n", rule.id, rule.description);
    if !reason.is_empty() {
        line += &format!("     {reason}\n");
    }
    line
}

fn word_and_reason(outcome: &Outcome) -> (&'static str, &str) {
    match outcome {
        Outcome::Passed => ("pass", ""),
        Outcome::Failed { what } => ("fail", what),
        Outcome::Skipped { reason } => ("skip", reason),
        _ => ("skip", "unknown outcome"),
    }
}

/// Returns the numbers of rules that passed, failed and were skipped.
fn numbers(report: &Report) -> (usize, usize, usize) {
    let (failed, skipped) = (report.failed().count(), report.skipped().count());
    (report.rules.len() - failed - skipped, failed, skipped)
}

fn summary(report: &Report) -> String {
    let (passed, failed, skipped) = numbers(report);
    format!("{passed} rules passed, {failed} failed, {skipped} skipped\n")
}

fn json_of(report: &Report, prefix: &str) -> String {
    let rule = |rule: &RuleReport| {
        let (word, reason) = word_and_reason(&rule.outcome);
        let requirements = rule.requirements.iter().map(|id| json::string(id));
        Object::default()
            .text("id", rule.id)
            .text("outcome", word)
            .text_omit_empty("reason", reason)
            .text("description", rule.description)
            .raw("requirements", json::array(requirements))
            .raw("milliseconds", rule.duration.as_millis())
            .end()
    };
    let (passed, failed, skipped) = numbers(report);
    let whole = Object::default()
        .text("prefix", prefix)
        .raw("passed", passed)
        .raw("failed", failed)
        .raw("skipped", skipped)
        .raw("rules", json::array(report.rules.iter().map(rule)))
        .end();
    format!("{whole}\n")
}
