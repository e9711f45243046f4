//! `hashkv`: etcdutl's hash of the key history in a file.

use std::path::PathBuf;

use clap::Args;

use crate::globals::Globals;
use crate::offline;
use crate::outcome::{ExitWith, Failure, with_causes};
use crate::print::Answer;

/// Flags of `hashkv`.
#[derive(Debug, Args)]
pub struct HashkvArgs {
    /// Database file, snapshot, or data directory of a stopped member
    #[arg(value_name = "FILENAME", required = true)]
    file: PathBuf,
    /// Maximum revision to hash; 0 is the latest
    #[arg(long, default_value_t = 0)]
    rev: i64,
}

/// Runs the command.
pub fn run(args: &HashkvArgs, globals: &Globals) -> Result<(), Failure> {
    let hash = offline::hash_kv(&args.file, args.rev, globals.lock_timeout);
    let hash = hash.map_err(|error| {
        // No server answers, so the text has no name of one, as with etcdutl.
        let message = with_causes(&error);
        let message = message.strip_prefix("etcdserver: ").unwrap_or(&message);
        Failure::new(ExitWith::Error, message)
    })?;
    globals.printer.print(&Answer::FileHash(&hash))
}
