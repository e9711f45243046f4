//! `alarm`: lists and disarms alarms.

use clap::Subcommand;
use portunus_proto::etcdserverpb::alarm_request::AlarmAction;
use portunus_proto::etcdserverpb::{AlarmRequest, AlarmResponse};

use super::no_args::NoArgs;
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};
use crate::print::Answer;

/// What to do with alarms.
#[derive(Debug, Subcommand)]
pub enum AlarmCommand {
    /// Disarms all alarms
    Disarm(NoArgs),
    /// Lists all alarms
    List(NoArgs),
}

/// Runs the command.
pub async fn run(command: AlarmCommand, globals: &Globals) -> Result<(), Failure> {
    let (name, args) = match &command {
        AlarmCommand::Disarm(args) => ("disarm", args),
        AlarmCommand::List(args) => ("list", args),
    };
    if !args.arguments.is_empty() {
        let message = format!("alarm {name} command accepts no arguments");
        return Err(Failure::new(ExitWith::BadArgs, message));
    }
    let client = globals.connect().await?;
    let active = client.alarm(AlarmRequest::default()).await?;
    let answer = match command {
        AlarmCommand::List(_) => active,
        AlarmCommand::Disarm(_) => {
            let mut disarmed = AlarmResponse::default();
            for alarm in active.alarms {
                let request = AlarmRequest {
                    action: AlarmAction::Deactivate.into(),
                    member_id: alarm.member_id,
                    alarm: alarm.alarm,
                };
                disarmed.alarms.extend(client.alarm(request).await?.alarms);
            }
            disarmed
        }
    };
    globals.printer.print(&Answer::Alarms(&answer))
}
