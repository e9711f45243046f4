//! `completion`: scripts for shells.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::outcome::{Failure, write_out};

/// Flags of `completion`.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub fn run(args: &CompletionArgs, portctl: &mut Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, portctl, "portctl", &mut script);
    write_out(&script)
}
