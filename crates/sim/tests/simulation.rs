//! Simulated clusters, and the check that they detect planted bugs.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::result_large_err
)]

use std::panic::catch_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use portunus_sim::cluster::{Class, PlantedBug, Report, Scenario, run, run_with_trace, shrink};

const SEEDS: u64 = 1_500;
/// The seeds within which every planted bug must be detected.
const SEEDS_PER_BUG_MAX: u64 = 1_500;

/// Runs one seed. A panic of the engine counts as a detected bug.
fn run_one(seed: u64, bug: Option<PlantedBug>) -> Result<Report, String> {
    match catch_unwind(|| run(&Scenario::from_seed(seed), bug)) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(failure)) => Err(format!("{failure}: {}", failure.violation.chain())),
        Err(_) => Err(format!("seed {seed}: panicked")),
    }
}

/// Runs a range of seeds on all cores; fails with the first failing seed.
fn run_seeds(seeds: u64, bug: Option<PlantedBug>) -> Result<Report, String> {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let results = thread::scope(|scope| {
        let run_some = || {
            let mut sum = Report::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return Ok(sum);
                }
                match run_one(seed, bug) {
                    Ok(report) => sum += report,
                    Err(failure) => {
                        // Stops the other threads.
                        next.store(seeds, Ordering::Relaxed);
                        return Err(failure);
                    }
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run_some)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.collect::<Vec<_>>()
    });
    let mut sum = Report::default();
    for result in results {
        sum += result?;
    }
    Ok(sum)
}

/// Members are restarted with other flags and versions, features are switched on and off, and
/// the effect of a client's entry depends on them.
///
/// `cargo run --release -p portunus-sim --bin simulate -- --seed N` prints a failing run.
///
/// Proves: S0-1, S0-5, S0-7, S0-24, S0-29, S0-A27, X9
#[test]
fn members_agree_under_faults_and_converge_after_they_stop() {
    let sum = run_seeds(SEEDS, None).unwrap_or_else(|failure| panic!("{failure}"));
    // A fault that does not occur proves nothing.
    let per_seed = |count: u64| count as f64 / SEEDS as f64;
    for (count, least) in [
        (sum.requests, 300.0),
        (sum.acknowledged, 180.0),
        (sum.reads, 20.0),
        (sum.elections, 2.0),
        (sum.crashes + sum.partitions, 10.0),
        (sum.crashes, 7.0),
        (sum.crashes_in_write, 1.0),
        (sum.crashes_in_start, 0.1),
        (sum.disks_lost, 0.1),
        (sum.partitions, 1.5),
        (sum.lost_messages, 100.0),
        (sum.compactions, 5.0),
        (sum.snapshots_sent, 1.0),
        (sum.installs, 1.0),
        (sum.leaders_lost_during_install, 0.002),
        (sum.members_added + sum.members_gone, 1.0),
        (sum.switches, 0.8),
        (sum.refused_by_feature, 0.5),
        (sum.watch_events, 20.0),
        (sum.progress_notices, 20.0),
        (sum.watches_compacted, 0.5),
        (sum.leases_renewed, 2.0),
        (sum.leases_expired, 2.0),
        (sum.hashes_compared, 2.0),
    ] {
        assert!(per_seed(count) >= least, "{least} not reached: {sum}");
    }
}

#[test]
fn every_planted_bug_is_detected() {
    let undetected: Vec<_> = PlantedBug::ALL
        .iter()
        .filter(|bug| match run_seeds(SEEDS_PER_BUG_MAX, Some(**bug)) {
            Ok(_) => true,
            Err(found) => {
                println!("{bug:?}: {found}");
                false
            }
        })
        .collect();
    assert!(undetected.is_empty(), "{undetected:?}");
}

#[test]
fn document_lists_every_planted_bug() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulation.md");
    let document = std::fs::read_to_string(path).unwrap();
    for bug in PlantedBug::ALL {
        assert!(document.contains(&format!("| `{bug:?}` |")), "{bug:?}");
    }
}

/// Reading the newest feature values in apply is the most likely implementation mistake.
#[test]
fn reading_the_newest_features_is_detected_within_100_seeds() {
    let found = run_seeds(100, Some(PlantedBug::ReadsNewestFeatures));
    assert!(found.is_err_and(|it| it.contains("another state")));
}

#[test]
fn same_scenario_gives_the_same_events() {
    let traced = |seed| {
        let mut lines = Vec::new();
        let result = run_with_trace(&Scenario::from_seed(seed), None, &mut |line| {
            lines.push(line);
        });
        (lines, result.unwrap())
    };
    for seed in 0..20 {
        assert_eq!(traced(seed), traced(seed), "seed {seed}");
        assert_eq!(
            traced(seed).1,
            run(&Scenario::from_seed(seed), None).unwrap()
        );
    }
}

#[test]
fn shrunk_scenario_still_fails() {
    let bug = Some(PlantedBug::NeverSyncs);
    let seed = (0..).find(|seed| run(&Scenario::from_seed(*seed), bug).is_err());
    let scenario = Scenario::from_seed(seed.unwrap());
    let (smallest, removed) = shrink(&scenario, bug);
    assert!(run(&smallest, bug).is_err());
    let mut expected = scenario.clone().without(&removed);
    expected.fault_ticks = smallest.fault_ticks;
    assert_eq!(smallest, expected);
    assert!(smallest.fault_ticks <= scenario.fault_ticks);
}

#[test]
fn classes_of_faults_round_trip_through_their_names() {
    for (class, name) in Class::ALL {
        assert_eq!(class.to_string(), name);
        assert_eq!(name.parse(), Ok(class));
    }
    assert!("weather".parse::<Class>().is_err());
}

#[test]
fn simulate_runs_many_seeds_or_traces_one() {
    let simulate = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
            .args(args)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, stdout) = simulate(&["--seeds", "5", "--without", "loss,crash"]);
    assert_eq!(code, Some(0));
    assert!(
        stdout.starts_with("no rule was broken in 5 seeds"),
        "{stdout}"
    );
    let (code, stdout) = simulate(&["--seed", "3", "--ticks", "20"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("no more faults"), "{stdout}");
    let (code, _) = simulate(&["--seed", "3", "--without", "weather"]);
    assert_eq!(code, Some(2));
}
