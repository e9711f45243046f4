//! `gate`: which features are on, why, since when, and what a change would do to them. etcdctl
//! has nothing of it.

mod explain;
mod history;
mod list;
mod plan;

use clap::Subcommand;
use portunus_client::ClientError;
use portunus_features::OwnFeatures;

use super::keys::is_serializable;
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure, with_causes};

/// What to do with feature gates.
#[derive(Debug, Subcommand)]
pub enum GateCommand {
    /// Lists all known features: cluster features, and the server features of each endpoint
    List(list::ListArgs),
    /// Prints whether features are on and why; without names, all that are on
    Status(list::StatusArgs),
    /// Explains why a feature is on or off; ends with the next command to run
    Explain(explain::ExplainArgs),
    /// Plans a change; exits with 7 if something blocks it
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Prints the decisions about cluster features, oldest first
    History(history::HistoryArgs),
    /// Prints changes of cluster features as they happen
    Watch(history::WatchArgs),
}

/// Runs the command.
pub async fn run(command: GateCommand, globals: &Globals) -> Result<(), Failure> {
    match command {
        GateCommand::List(args) => list::list(args, globals).await,
        GateCommand::Status(args) => list::status(args, globals).await,
        GateCommand::Explain(args) => explain::run(args, globals).await,
        GateCommand::Plan(command) => plan::run(command, globals).await,
        GateCommand::History(args) => history::history(args, globals).await,
        GateCommand::Watch(args) => history::watch(args, globals).await,
    }
}

/// The consistency of the replies.
#[derive(Debug, clap::Args)]
struct ConsistencyArgs {
    /// Linearizable(l) or serializable(s), which needs no quorum
    #[arg(long, default_value = "l")]
    consistency: String,
}

impl ConsistencyArgs {
    fn is_serializable(&self) -> Result<bool, Failure> {
        is_serializable(&self.consistency)
    }
}

/// A failure that distinguishes servers that do not know the request from those that refuse it.
pub fn gate_failure(error: ClientError) -> Failure {
    let is_unimplemented = error.is_unimplemented();
    let mut failure = Failure::from(error);
    if is_unimplemented {
        let note = "this server does not support that request about feature gates";
        failure.note = Some(note.to_owned());
    }
    failure
}

/// The features this program was built with.
fn own_features() -> Result<OwnFeatures, Failure> {
    OwnFeatures::declared().map_err(|error| Failure::new(ExitWith::Error, with_causes(&error)))
}

fn bad_arguments(message: impl std::fmt::Display) -> Failure {
    Failure::new(ExitWith::BadArgs, message)
}
