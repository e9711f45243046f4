//! `defrag`: releases unused space of members' files, one member after the other.

use std::time::Instant;

use clap::Args;

use super::members;
use crate::globals::Globals;
use crate::go::duration;
use crate::outcome::{ExitWith, Failure, write_err, write_out};

/// Flags of `defrag`.
#[derive(Debug, Args)]
pub struct DefragArgs {
    /// Use all endpoints from the cluster member list
    #[arg(long)]
    cluster: bool,
}

/// Runs the command.
pub async fn run(args: DefragArgs, globals: &Globals) -> Result<(), Failure> {
    let mut failed = false;
    for endpoint in members::endpoints(args.cluster, globals).await? {
        let client = globals.connect_to(&endpoint).await?;
        let started = Instant::now();
        let outcome = client.defragment().await;
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
