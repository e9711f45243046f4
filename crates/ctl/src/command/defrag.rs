//! `defrag`: releases unused space of members' files, one member after the other; with `--data-dir`
//! that of a stopped member.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use clap::Args;

use super::members;
use crate::globals::Globals;
use crate::go::duration;
use crate::go::size::humanize;
use crate::offline;
use crate::outcome::{ExitWith, Failure, with_causes, write_err, write_out};
use crate::terminal::Progress;

/// Flags of `defrag`.
#[derive(Debug, Args)]
pub struct DefragArgs {
    /// Use all endpoints from the cluster member list
    #[arg(long)]
    cluster: bool,
    /// Data directory of a stopped member, to defragment without a server
    #[arg(long, value_name = "DIR", conflicts_with = "cluster")]
    data_dir: Option<OsString>,
}

/// Runs the command.
pub async fn run(args: DefragArgs, globals: &Globals) -> Result<(), Failure> {
    if let Some(dir) = args.data_dir {
        return defragment_stopped(Path::new(&dir), globals);
    }
    let mut failed = false;
    for endpoint in members::endpoints(args.cluster, globals).await? {
        let client = globals.connect_to(&endpoint).await?;
        let mut progress = Progress::new("defragmenting");
        progress.text(|| endpoint.clone());
        let started = Instant::now();
        let outcome = client.defragment().await;
        drop(progress);
        let took = duration::format(started.elapsed());
        match outcome {
            Ok(_) => {
                let line = format!("Finished defragmenting etcd member[{endpoint}]. took {took}\n");
                write_out(line.as_bytes())?;
            }
            Err(error) => {
                failed = true;
                let line = format!(
                    "Failed to defragment etcd member[{endpoint}]. took {took}. ({error})\n"
                );
                write_err(line.as_bytes());
            }
        }
    }
    if failed {
        return Err(Failure::reported(ExitWith::Error));
    }
    Ok(())
}

fn defragment_stopped(data_dir: &Path, globals: &Globals) -> Result<(), Failure> {
    let mut bar = Progress::new("defragmenting");
    bar.text(|| data_dir.display().to_string());
    let progress = |done: u64, all: u64| bar.part(done, all, humanize);
    let done = offline::defragment(data_dir, globals.lock_timeout, progress);
    drop(bar);
    let data_dir = data_dir.display();
    let done = done.map_err(|error| {
        let causes = with_causes(&error);
        let message = format!("Failed to defragment etcd data[{data_dir}] ({causes})");
        Failure::new(ExitWith::Error, message)
    })?;
    let (before, after) = (humanize(done.bytes_before), humanize(done.bytes_after));
    write_err(format!("defragmented {data_dir}: {before} before, {after} now\n").as_bytes());
    Ok(())
}
