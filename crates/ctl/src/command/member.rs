//! `member`: who is in the cluster.

use clap::{Args, Subcommand};
use portunus_proto::etcdserverpb::MemberListRequest;

use super::keys::is_serializable;
use crate::globals::Globals;
use crate::outcome::Failure;
use crate::print::Answer;

/// What to do with members.
#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Lists all members in the cluster
    List(ListArgs),
}

/// Flags of `member list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Linearizable(l) or serializable(s)
    #[arg(long, default_value = "l")]
    consistency: String,
}

/// Runs it.
pub async fn run(command: MemberCommand, globals: &Globals) -> Result<(), Failure> {
    let MemberCommand::List(args) = command;
    let linearizable = !is_serializable(&args.consistency)?;
    let request = MemberListRequest { linearizable };
    let members = globals.connect()?.member_list(request).await?;
    globals.printer.print(&Answer::Members(&members))
}
