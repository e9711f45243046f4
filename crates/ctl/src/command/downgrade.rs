//! `downgrade`: enables, cancels or shows a downgrade of the cluster.

use clap::{Args, Subcommand};
use portunus_gates::cluster::DowngradeState;
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;
use portunus_proto::etcdserverpb::{DowngradeRequest, Member};

use crate::gates::collect::collect;
use crate::gates::fleet::{downgrade_target, major_minor};
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
    /// Prints the progress of a downgrade and the next step
    Status,
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

/// Runs the command.
pub async fn run(command: DowngradeCommand, globals: &Globals) -> Result<(), Failure> {
    let (did, action, version) = match command {
        DowngradeCommand::Validate(args) => ("validate", DowngradeAction::Validate, target(args)?),
        DowngradeCommand::Enable(args) => ("enable", DowngradeAction::Enable, target(args)?),
        DowngradeCommand::Cancel(_) => ("cancel", DowngradeAction::Cancel, String::new()),
        DowngradeCommand::Status => return status(globals).await,
    };
    let request = DowngradeRequest {
        action: action.into(),
        version,
    };
    let response = &globals.connect().await?.downgrade(request).await?;
    globals.printer.print(&Answer::Downgrade { did, response })
}

/// Prints the version of every member, and that of the cluster.
async fn status(globals: &Globals) -> Result<(), Failure> {
    let report = collect(globals, true).await?;
    let statuses = report.members.iter().map(|member| {
        let status = member.replies.as_ref().ok().map(|replies| &replies.status);
        (display_name(&member.member), status)
    });
    let statuses: Vec<_> = statuses.collect();
    // The member that has applied most has the newest state.
    let newest = statuses.iter().filter_map(|(_, status)| *status);
    let newest = newest.max_by_key(|status| status.raft_applied_index);
    let cluster = newest.and_then(|status| major_minor(&status.storage_version));
    let members: Vec<_> = statuses
        .iter()
        .map(|(name, status)| (name.clone(), status.and_then(|it| major_minor(&it.version))))
        .collect();
    let state = DowngradeState::new(cluster, downgrade_target(&report), &members);
    globals.printer.print(&Answer::DowngradeStatus(&state))
}

fn display_name(member: &Member) -> String {
    match member.name.as_str() {
        "" => format!("{:x}", member.id),
        name => name.to_owned(),
    }
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
