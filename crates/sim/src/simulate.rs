//! `simulate`: runs the simulated clusters of the tests for a range of seeds.
//!
//! Progress goes to stderr. The first seed that violates an invariant ends the run with exit
//! code 1; it is run again to print its last events, and then shrunk. `--seed` runs one seed
//! and prints every event.

use std::cell::Cell;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use portunus_sim::cluster::{
    Class, Failure, PlantedBug, Report, Scenario, run, run_with_trace, shrink,
};

/// Events printed of a failed run.
const LAST_EVENTS: usize = 60;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

thread_local! {
    /// The seed of this thread, for the panic message.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// Runs simulated clusters and checks every step.
///
/// The classes of faults are: loss, repetition, delay, partition, crash, disk-loss,
/// crash-in-write, crash-of-all, skew, slow-disk, slow-apply, membership, transfer, compaction,
/// slow-install, watches, features.
#[derive(Debug, Parser)]
#[command(name = "simulate", version)]
struct Arguments {
    /// Runs only this seed and prints every event.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds.
    #[arg(long, default_value_t = 10_000, conflicts_with = "seed")]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    from: u64,
    /// Number of threads; by default the number of cores.
    #[arg(long)]
    threads: Option<usize>,
    /// Classes of faults to disable.
    #[arg(long, value_delimiter = ',')]
    without: Vec<Class>,
    /// Ticks with faults, instead of the number drawn from the seed.
    #[arg(long)]
    ticks: Option<u64>,
    /// Plants a bug, to see how a run detects it.
    #[arg(long, value_parser = planted_bug)]
    bug: Option<PlantedBug>,
    /// Initial members, instead of the number drawn from the seed.
    #[arg(long)]
    members: Option<u64>,
}

fn planted_bug(name: &str) -> Result<PlantedBug, String> {
    let mut all = PlantedBug::ALL.iter().copied();
    let names = || PlantedBug::ALL.iter().map(|it| format!("{it:?}"));
    all.find(|it| format!("{it:?}") == name).ok_or_else(|| {
        format!(
            "the planted bugs are {}",
            names().collect::<Vec<_>>().join(", ")
        )
    })
}

impl Arguments {
    /// Returns the command that runs one seed, with further classes of faults disabled.
    fn command(&self, seed: u64, ticks: Option<u64>, removed: &[Class]) -> String {
        let mut command = format!("simulate --seed {seed}");
        let mut option = |name: &str, value: Option<String>| {
            let value = value.filter(|value| !value.is_empty());
            command.extend(value.map(|value| format!(" --{name} {value}")));
        };
        let without = self.without.iter().chain(removed);
        let without: Vec<String> = without.map(Class::to_string).collect();
        option("ticks", ticks.map(|ticks| ticks.to_string()));
        option("members", self.members.map(|members| members.to_string()));
        option("without", Some(without.join(",")));
        option("bug", self.bug.map(|bug| format!("{bug:?}")));
        command
    }

    fn scenario(&self, seed: u64) -> Scenario {
        let mut scenario = Scenario::from_seed(seed).without(&self.without);
        if let Some(ticks) = self.ticks {
            scenario.fault_ticks = ticks;
        }
        if let Some(members) = self.members {
            scenario.members = members;
        }
        scenario
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("simulate: panicked; repeat with --seed {}", SEED.get());
        default_hook(info);
    }));
    let failed = match arguments.seed {
        Some(seed) => run_one(&arguments, seed),
        None => run_many(&arguments),
    };
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn run_one(arguments: &Arguments, seed: u64) -> bool {
    SEED.set(seed);
    let scenario = arguments.scenario(seed);
    match run_with_trace(&scenario, arguments.bug, &mut |line| println!("{line}")) {
        Ok(report) => {
            println!("no rule was broken: {report}");
            false
        }
        Err(failure) => {
            eprintln!("simulate: {failure}: {}", failure.violation.chain());
            true
        }
    }
}

fn run_many(arguments: &Arguments) -> bool {
    let end = arguments.from.saturating_add(arguments.seeds);
    let available = || thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or_else(available).max(1);
    let next = AtomicU64::new(arguments.from);
    let total = Mutex::new((Report::default(), 0_u64));
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let last_progress = Mutex::new(started);

    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    SEED.set(seed);
                    match run(&arguments.scenario(seed), arguments.bug) {
                        Ok(report) => {
                            let (sum, count) = &mut *lock(&total);
                            *sum += report;
                            *count += 1;
                            let mut last = lock(&last_progress);
                            if last.elapsed() >= PROGRESS_INTERVAL {
                                *last = Instant::now();
                                let seconds = started.elapsed().as_secs();
                                eprintln!("simulate: {seconds} s: {count} seeds, {sum}");
                            }
                        }
                        Err(failure) => {
                            stop.store(true, Ordering::Relaxed);
                            lock(&failed).get_or_insert(failure);
                        }
                    }
                }
            });
        }
    });

    let (sum, count) = *lock(&total);
    let Some(failure) = lock(&failed).take() else {
        println!("no rule was broken in {count} seeds: {sum}");
        return false;
    };
    eprintln!("simulate: {failure}: {}", failure.violation.chain());
    explain(arguments, failure.seed);
    true
}

/// Prints the last events of a failing run and the command for a shrunk one.
fn explain(arguments: &Arguments, seed: u64) {
    let scenario = arguments.scenario(seed);
    let mut last = VecDeque::new();
    // Fails as before: the same scenario produces the same events.
    let _ = run_with_trace(&scenario, arguments.bug, &mut |line| {
        // Heartbeats go on all the time; `--seed` prints them, too.
        if line.contains("MsgHeartbeat") {
            return;
        }
        if last.len() == LAST_EVENTS {
            last.pop_front();
        }
        last.push_back(line);
    });
    for line in last {
        eprintln!("{line}");
    }
    let repeat = arguments.command(seed, arguments.ticks, &[]);
    eprintln!("simulate: to repeat the run: `{repeat}`");
    let (smallest, removed) = shrink(&scenario, arguments.bug);
    let shrunk = arguments.command(seed, Some(smallest.fault_ticks), &removed);
    eprintln!("simulate: a shrunk run that still fails: `{shrunk}`");
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
