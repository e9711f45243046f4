//! `compaction`: removes old revisions.

use clap::Args;
use portunus_proto::etcdserverpb::CompactionRequest;

use crate::globals::Globals;
use crate::go::integer;
use crate::outcome::{ExitWith, Failure, write_out};

/// Flags of `compaction`.
#[derive(Debug, Args)]
pub struct CompactionArgs {
    #[arg(value_name = "REVISION")]
    arguments: Vec<String>,
    /// Wait for compaction to physically remove all old revisions
    #[arg(long)]
    physical: bool,
}

/// Runs the command.
pub async fn run(args: CompactionArgs, globals: &Globals) -> Result<(), Failure> {
    let [revision] = args.arguments.as_slice() else {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "compaction command needs 1 argument",
        ));
    };
    let revision = integer::parse_i64(revision, 10)
        .map_err(|problem| Failure::new(ExitWith::Error, problem))?;
    let request = CompactionRequest {
        revision,
        physical: args.physical,
    };
    globals.connect_for_data().await?.compact(request).await?;
    write_out(format!("compacted revision {revision}\n").as_bytes())
}
