//! `downgrade`: lets the cluster go back a version, or take that back.

use clap::{Args, Subcommand};
use portunus_proto::etcdserverpb::DowngradeRequest;
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;

use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};
use crate::print::Answer;

/// What to do about a downgrade.
#[derive(Debug, Subcommand)]
pub enum DowngradeCommand {
    /// Validates the downgrade capability before starting a downgrade
    Validate(TargetArgs),
    /// Starts a downgrade of the cluster
    Enable(TargetArgs),
    /// Cancels the ongoing downgrade of the cluster
    Cancel(CancelArgs),
}

/// Flags of `downgrade validate` and `downgrade enable`.
#[derive(Debug, Args)]
pub struct TargetArgs {
    #[arg(value_name = "TARGET_VERSION")]
    arguments: Vec<String>,
}

/// Flags of `downgrade cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    // etcdctl takes any and reads none.
    #[arg(hide = true)]
    arguments: Vec<String>,
}

/// Runs it.
pub async fn run(command: DowngradeCommand, globals: &Globals) -> Result<(), Failure> {
    let (did, action, version) = match command {
        DowngradeCommand::Validate(args) => ("validate", DowngradeAction::Validate, target(args)?),
        DowngradeCommand::Enable(args) => ("enable", DowngradeAction::Enable, target(args)?),
        DowngradeCommand::Cancel(_) => ("cancel", DowngradeAction::Cancel, String::new()),
    };
    let request = DowngradeRequest {
        action: action.into(),
        version,
    };
    let response = &globals.connect()?.downgrade(request).await?;
    globals.printer.print(&Answer::Downgrade { did, response })
}

fn target(mut args: TargetArgs) -> Result<String, Failure> {
    let bad = |message: &str| Err(Failure::new(ExitWith::BadArgs, message));
    let Some(version) = args.arguments.pop() else {
        return bad("TARGET_VERSION not provided");
    };
    if !args.arguments.is_empty() {
        return bad("too many arguments");
    }
    if version.is_empty() {
        return bad("target version not provided");
    }
    Ok(version)
}
