//! The command line of `compare-apiserver`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use portunus_testkit::go_program;
use thiserror::Error;

use super::figures;
use super::loads::{self, Sample, Scale};
use super::pair::{Pair, PairError, Program};
use crate::machine::Machine;

/// Measured time of each load with `--quick`.
const QUICK_SECONDS: u64 = 3;
/// Objects that are created while watches are open.
const WATCHED: usize = 300;

/// Runs the same requests on this library's API server and on Kubernetes' sample API server, and
/// prints ratios.
#[derive(Debug, Parser)]
#[command(name = "compare-apiserver", version)]
pub struct Command {
    /// The sample API server; without it, what scripts/go-program builds
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// The example `wardle` of portunus-apiserver; without it, the one beside this program
    #[arg(long, value_name = "PATH")]
    wardle: Option<PathBuf>,
    /// The store, Portunus or etcd; without it, the portunus beside this program
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measured seconds of each load on each server
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Run in two to three minutes: three rounds of short measurements
    #[arg(long)]
    quick: bool,
}

/// Why the comparison failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is nothing to compare with.
    #[error("there is no sample API server: {0}")]
    NoPeer(String),
    /// A server failed.
    #[error("the comparison could not be finished")]
    Pair(#[from] PairError),
}

impl Command {
    /// Runs the comparison and prints the figures.
    ///
    /// # Errors
    /// If a server does not start or a request fails.
    pub async fn run(self) -> Result<(), CommandError> {
        let peer = match self.peer {
            Some(path) => path,
            None => go_program::build("sample-apiserver").map_err(CommandError::NoPeer)?,
        };
        let own = std::env::current_exe().unwrap_or_default();
        let beside = |name: &str| own.with_file_name(name);
        let programs = [
            Program {
                label: "sample-apiserver",
                path: peer,
            },
            Program {
                label: "portunus wardle",
                path: self.wardle.unwrap_or_else(|| beside("examples/wardle")),
            },
        ];
        let store = self.store.unwrap_or_else(|| beside("portunus"));
        let (rounds, seconds) = match self.quick {
            true => (3, QUICK_SECONDS),
            false => (self.rounds, self.seconds),
        };
        let scale = Scale {
            measured: Duration::from_secs(seconds),
            watched: WATCHED,
        };
        println!("{}\n", Machine::here());
        let mut samples: [Vec<Sample>; 2] = Default::default();
        for round in 0..rounds {
            // The order alternates, so that other load of the machine affects both equally.
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in order {
                let pair = Pair::start(&programs[at], &store).await?;
                for sample in loads::run(&pair, scale).await? {
                    let rate = sample.per_second;
                    let rate = rate.map_or(String::new(), |rate| format!(", {rate:.0}/s"));
                    println!(
                        "round {}/{rounds}  {:<20} {:<17} {:.1} {}{rate}",
                        round + 1,
                        sample.load.name(),
                        programs[at].label,
                        sample.value,
                        sample.load.unit(),
                    );
                    samples[at].push(sample);
                }
            }
        }
        println!("\n{}", figures::table(&samples[0], &samples[1]));
        Ok(())
    }
}
