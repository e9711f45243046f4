//! `gate explain`: why a feature is as it is.

use clap::Args;

use super::{ConsistencyArgs, bad, own_features};
use crate::gates::{picture, story, survey};
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
        return Err(bad(
            "gate explain command needs one argument as feature name",
        ));
    };
    let own = own_features()?;
    let serializable = args.consistency.is_serializable()?;
    let survey = survey::survey(globals, serializable).await?;
    let picture = picture::picture(&survey, &own);
    let story = story::tell(&survey, &picture, &own, name);
    let story = story.map_err(|unknown| Failure::new(ExitWith::Error, unknown))?;
    let answer = Answer::Gate(GateAnswer::Story(&story));
    globals.printer.print(&answer)
}
