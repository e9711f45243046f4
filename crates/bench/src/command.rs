//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::{Parser, ValueEnum};
use portunus_testkit::go::Tool;
use portunus_testkit::program::Kind;
use thiserror::Error;

use crate::access::{Access, AccessError};
use crate::compare::{self, Plan};
use crate::lines::Line;
use crate::machine::Machine;
use crate::mode::Mode;
use crate::report::Report;
use crate::server::{Program, ServerError};
use crate::workload::{self, Scale, Workload, WorkloadError};

/// Runs the same load on Portunus and on etcd, one after the other, and prints ratios.
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
pub struct Command {
    /// The etcd binary to compare with; without it, PORTUNUS_ETCD, then the one that
    /// scripts/go-etcd has built, then PATH
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// The Portunus binary; without it, the one beside this program
    #[arg(long, value_name = "PATH")]
    portunus: Option<PathBuf>,
    /// Members of each cluster: 1 or 3, each with its own workloads
    #[arg(long, default_value_t = 1, value_parser = members)]
    members: usize,
    /// Enable authentication on both servers: every request carries the token of a user, who may
    /// read and write the keys of the load
    #[arg(long)]
    auth: bool,
    /// Use mutual TLS between clients and both servers; peers do not use TLS
    #[arg(long)]
    tls: bool,
    /// Number of rounds of all workloads
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measured seconds of each workload on each server
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Workloads to run, such as put,get-serializable; by default all
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Also write every sample of every round to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    write_out: Format,
    /// Run in about ten minutes: short measurements, and the big store only once
    #[arg(long)]
    quick: bool,
    /// Run everything once and very shortly, only to check that it works
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    Table,
    /// One JSON object per line and workload
    Json,
}

/// Measured time of each workload with `--quick`.
const QUICK_MILLISECONDS: u64 = 2500;

/// Why the comparison failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum CommandError {
    /// The Portunus binary does not run.
    #[error(
        "there is no Portunus binary at {path}: build it with `cargo build --release -p portunus-server`, or give --portunus"
    )]
    NoPortunus { path: String, source: ServerError },
    /// A name that matches no workload.
    #[error("no workload is called `{name}`: choose from {known}")]
    UnknownWorkload { name: String, known: String },
    /// None of the selected workloads can run in this mode.
    #[error("none of the selected workloads can run with {mode}")]
    NoneSupported { mode: Mode },
    /// The certificates could not be issued.
    #[error("TLS could not be prepared")]
    Access(#[from] AccessError),
    /// A workload failed.
    #[error("the comparison could not be finished")]
    Run(#[from] WorkloadError),
    /// Some requests failed, so the figures are not valid.
    #[error("{count} requests failed: the figures above are not valid")]
    RequestsFailed { count: u64 },
    /// Writing the figures failed.
    #[error("the figures could not be written to {path}")]
    Write { path: String, source: io::Error },
}

impl Command {
    /// Runs the comparison and prints the figures to stdout.
    pub async fn run(self) -> Result<(), CommandError> {
        let plan = self.plan()?;
        let machine = Machine::here();
        match self.write_out {
            Format::Table => println!("{machine}\n"),
            Format::Json => eprintln!("{machine}"),
        }
        let report = compare::run(&plan, machine).await?;
        self.print(&report);
        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        let samples = report.outcomes.iter().flat_map(|outcome| &outcome.servers);
        let samples = samples.flat_map(|server| &server.samples);
        match samples.map(|sample| sample.failures).sum() {
            0 => Ok(()),
            count => Err(CommandError::RequestsFailed { count }),
        }
    }

    fn print(&self, report: &Report) {
        if self.write_out == Format::Json {
            for line in report.outcomes.iter().filter_map(Line::of) {
                println!("{}", serde_json::to_string(&line).unwrap_or_default());
            }
            return;
        }
        if report.is_smoke {
            println!("A smoke run: everything ran, the figures mean nothing.\n");
        }
        for outcome in &report.outcomes {
            println!("{}", outcome.table());
        }
    }

    fn plan(&self) -> Result<Plan, CommandError> {
        let known = match self.members {
            1 => workload::ONE_MEMBER,
            _ => workload::THREE_MEMBERS,
        };
        let mode = self.mode();
        let workloads = supported(mode, select_workloads(&self.only, known)?)?;
        let own_path = self.portunus.clone().unwrap_or_else(beside_this_program);
        let portunus = Program::at(&own_path, Kind::Portunus).map_err(|source| {
            let path = own_path.display().to_string();
            CommandError::NoPortunus { path, source }
        })?;
        let programs: Vec<Program> = self.peer_program().into_iter().chain([portunus]).collect();
        let scale = if self.smoke {
            Scale::smoke()
        } else if self.quick {
            Scale::full(Duration::from_millis(QUICK_MILLISECONDS))
        } else {
            Scale::full(Duration::from_secs(self.seconds))
        };
        let rounds = if self.smoke { 1 } else { self.rounds };
        for program in &programs {
            eprintln!("{}: {}", program.label, program.path.display());
        }
        Ok(Plan {
            programs,
            access: Access::new(mode)?,
            members: self.members,
            workloads,
            rounds: usize::try_from(rounds).unwrap_or(usize::MAX),
            scale,
            is_quick: self.quick,
            is_smoke: self.smoke,
        })
    }

    fn mode(&self) -> Mode {
        Mode {
            auth: self.auth,
            tls: self.tls,
        }
    }

    /// Returns the etcd to compare with, or prints a notice that there is none.
    fn peer_program(&self) -> Option<Program> {
        let path = match &self.peer {
            Some(path) => Ok(path.clone()),
            None => portunus_testkit::go::find_ready(Tool::Etcd).map_err(|error| error.to_string()),
        };
        let program =
            path.and_then(|path| Program::at(&path, Kind::Etcd).map_err(|error| error.to_string()));
        let why = match program {
            Ok(program) => return Some(program),
            Err(why) => why,
        };
        eprintln!("!!");
        eprintln!("!! NO ETCD TO COMPARE WITH: {why}.");
        eprintln!("!! Only Portunus is measured; its figures alone depend mostly on this machine.");
        eprintln!(
            "!! Run {} to get it, or give --peer.",
            portunus_testkit::go::SCRIPT
        );
        eprintln!("!!");
        None
    }
}

/// Returns the path of a `portunus` beside this program.
pub(crate) fn beside_this_program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(Path::new(".")).join("portunus")
}

fn members(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("clusters have 1 or 3 members".to_owned()),
    }
}

fn select_workloads(names: &[String], all: &[Workload]) -> Result<Vec<Workload>, CommandError> {
    for name in names {
        if !all.iter().any(|load| load.matches_name(name)) {
            let known: Vec<&str> = all.iter().map(|load| load.name).collect();
            return Err(CommandError::UnknownWorkload {
                name: name.clone(),
                known: known.join(", "),
            });
        }
    }
    let is_selected =
        |load: &Workload| names.is_empty() || names.iter().any(|name| load.matches_name(name));
    // Complete groups: a continuation needs the workloads before it.
    let groups = workload::groups(all).filter(|group| group.iter().any(is_selected));
    Ok(groups.flatten().copied().collect())
}

/// Returns the workloads that can run in this mode; prints the names of the others.
fn supported(mode: Mode, selected: Vec<Workload>) -> Result<Vec<Workload>, CommandError> {
    let (supported, left_out): (Vec<Workload>, Vec<Workload>) = selected
        .into_iter()
        .partition(|workload| mode.supports(workload));
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|workload| workload.name).collect();
        eprintln!(
            "!! left out, because they cannot run with {mode}: {}",
            names.join(", ")
        );
    }
    match supported.is_empty() {
        true => Err(CommandError::NoneSupported { mode }),
        false => Ok(supported),
    }
}

fn write_json(path: &Path, report: &Report) -> Result<(), CommandError> {
    serde_json::to_vec_pretty(report)
        .map_err(io::Error::from)
        .and_then(|text| fs::write(path, text))
        .map_err(|source| CommandError::Write {
            path: path.display().to_string(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{ONE_MEMBER, THREE_MEMBERS};

    #[test]
    fn all_workloads_run_in_order_without_names() {
        for all in [ONE_MEMBER, THREE_MEMBERS] {
            assert_eq!(select_workloads(&[], all).unwrap().len(), all.len());
        }
    }

    #[test]
    fn selected_continuation_includes_the_workloads_before_it() {
        let meant =
            select_workloads(&["big-asked".to_owned(), "get".to_owned()], ONE_MEMBER).unwrap();
        let names: Vec<&str> = meant.iter().map(|workload| workload.name).collect();
        let expected = [
            "get",
            "get-serializable",
            "big-load",
            "big-killed",
            "big-asked",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn workloads_that_cannot_run_in_the_mode_are_left_out() {
        let mode = Command::parse_from(["compare", "--auth"]).mode();
        let selected = select_workloads(&["restart".to_owned()], ONE_MEMBER).unwrap();
        let remaining = supported(mode, selected).unwrap();
        let names: Vec<&str> = remaining.iter().map(|workload| workload.name).collect();
        assert_eq!(names, ["restart-load"]);

        let selected = select_workloads(&["leader".to_owned()], THREE_MEMBERS).unwrap();
        let error = supported(mode, selected).unwrap_err().to_string();
        assert!(error.contains("--auth"), "{error}");
    }

    #[test]
    fn unknown_workload_name_is_refused_with_the_known_names() {
        let error = select_workloads(&["puts".to_owned()], ONE_MEMBER)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`puts`") && error.contains("get-serializable"),
            "{error}"
        );
    }
}
