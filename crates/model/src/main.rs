//! `explore`: runs the explorations of the tests, optionally deeper.
//!
//! It prints the number of states of each exploration. With a broken property it also prints
//! the steps that broke it and exits with code 1.

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use clap::Parser;
use portunus_model::{Agreement, Limits};
use stateright::{Checker, HasDiscoveries, Model};

/// Explores the agreement about cluster features in every order of events.
#[derive(Debug, Parser)]
#[command(name = "explore", version)]
struct Arguments {
    /// Depth: 1 as in the tests; each further step takes ten times as long and as much memory.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=6))]
    depth: u8,
    /// Run only explorations whose name contains this text.
    #[arg(long)]
    about: Option<String>,
    /// Number of threads; by default the number of CPUs.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let available = || thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or_else(available).max(1);
    let about = arguments.about.unwrap_or_default();
    let mut is_broken = false;
    for limits in Limits::all(arguments.depth) {
        if !limits.about.contains(&about) {
            continue;
        }
        eprintln!("explore: {limits:?}");
        let name = limits.about;
        let model = match Agreement::new(limits, None) {
            Ok(model) => model,
            Err(error) => {
                eprintln!("explore: the model's features are not legal: {error}");
                return ExitCode::FAILURE;
            }
        };
        let started = Instant::now();
        let checker = model
            .checker()
            .threads(threads)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let (states, seconds) = (checker.unique_state_count(), started.elapsed().as_secs());
        println!("{name}: {states} states in {seconds} s");
        for property in checker.model().properties() {
            let Some(path) = checker.discovery(property.name) else {
                continue;
            };
            if !property.expectation.discovery_is_failure() {
                continue;
            }
            is_broken = true;
            println!("broken: {}", property.name);
            for (state, action) in path.into_vec() {
                println!("{state:?}");
                if let Some(action) = action {
                    println!("--- {action:?}");
                }
            }
        }
    }
    if is_broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
