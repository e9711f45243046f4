//! `gate explain`: why a feature is as it is.

use clap::Args;

use super::{ConsistencyArgs, bad_arguments, own_features};
use crate::gates::{collect, explain, fleet};
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};
use crate::print::{Answer, GateAnswer};

/// Flags of `gate explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[arg(value_name = "NAME")]
    arguments: Vec<String>,
    #[command(flatten)]
    consistency: ConsistencyArgs,
}

/// Runs the command.
pub async fn run(args: ExplainArgs, globals: &Globals) -> Result<(), Failure> {
    let [name] = args.arguments.as_slice() else {
        return Err(bad_arguments(
            "gate explain command needs one argument as feature name",
        ));
    };
    let own = own_features()?;
    let serializable = args.consistency.is_serializable()?;
    let report = collect::collect(globals, serializable).await?;
    let observed = fleet::observe(&report, &own);
    let explanation = explain::explain(&report, &observed, &own, name);
    let explanation = explanation.map_err(|unknown| Failure::new(ExitWith::Error, unknown))?;
    let answer = Answer::Gate(GateAnswer::Explanation(&explanation));
    globals.printer.print(&answer)
}
