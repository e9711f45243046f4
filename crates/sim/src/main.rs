//! `torture`: the checks of [`portunus_sim::torture`], for a given time or number of kills.
//!
//! Prints its seed and its progress; exits with 1 at the first contradiction and prints the
//! path of the kept data directory.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use portunus_sim::torture::{self, Options, Until};

/// Clients and watchers use a member that is killed repeatedly; every answer, every event and
/// the files are checked after every kill.
#[derive(Debug, Parser)]
#[command(name = "torture", version)]
struct Arguments {
    /// The server binary.
    #[arg(long, default_value = "target/release/portunus")]
    portunus: PathBuf,
    /// Duration of the run.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Stop after this many kills instead.
    #[arg(long, conflicts_with = "minutes")]
    kills: Option<u64>,
    /// Clients that write and read.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Repeats the choices of an earlier run; the timing also depends on the machine.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = arguments
        .seed
        .unwrap_or_else(|| clock.map_or(1, |since| since.as_micros() as u64));
    eprintln!("torture: repeat with --seed {seed}");
    let folder = match tempfile::Builder::new().prefix("torture-").tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("torture: no temporary directory ({error}): check TMPDIR");
            return ExitCode::FAILURE;
        }
    };
    let options = Options {
        portunus: arguments.portunus,
        data_dir: folder.path().join("member.etcd"),
        seed,
        clients: arguments.clients,
        until: arguments.kills.map_or(
            Until::Elapsed(Duration::from_secs(60 * arguments.minutes)),
            Until::Kills,
        ),
    };
    let started = Instant::now();
    let result = torture::run(&options, |progress| {
        let seconds = started.elapsed().as_secs();
        eprintln!("torture: {seconds} s: {progress}");
    })
    .await;
    match result {
        Ok(progress) => {
            println!("no contradiction: {progress}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let kept = folder.keep();
            eprintln!("torture: {}", error.chain());
            eprintln!(
                "torture: seed {seed}; the data directory and the member's log are kept in {}",
                kept.display()
            );
            ExitCode::FAILURE
        }
    }
}
