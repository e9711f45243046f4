//! `elect`: takes part in an election, or follows one.

use std::ffi::OsString;

use clap::Args;
use portunus_client::Client;
use portunus_client::concurrency::{Election, Leadership, Observer, Session, SessionOptions};
use portunus_proto::etcdserverpb::{RangeRequest, RangeResponse};

use super::keys::argument_bytes;
use super::lock::{canceled, connect_without_timeout, failed};
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};
use crate::print::Answer;
use crate::signals::Signals;

/// Flags of `elect`.
#[derive(Debug, Args)]
pub struct ElectArgs {
    /// Name of the election, and the value to publish as its leader
    #[arg(value_name = "NAME [PROPOSAL]")]
    arguments: Vec<OsString>,
    /// Print the current leader and every later one, without taking part
    #[arg(short = 'l', long)]
    listen: bool,
}

/// Runs the command.
pub async fn run(args: ElectArgs, globals: &Globals) -> Result<(), Failure> {
    let bad = |message: &str| Err(Failure::new(ExitWith::BadArgs, message));
    match (args.arguments.as_slice(), args.listen) {
        ([name], true) => observe(name, globals).await,
        ([name, proposal], false) => campaign(name, proposal, globals).await,
        ([_], false) => bad("no proposal argument but -l not set"),
        ([_, _], true) => bad("proposal given but -l is set"),
        _ => bad("elect takes one election name argument and an optional proposal argument"),
    }
}

/// Prints leaders until a signal.
async fn observe(name: &OsString, globals: &Globals) -> Result<(), Failure> {
    let client = connect_without_timeout(globals).await?;
    let mut signals = Signals::new()?;
    let mut observer = Observer::new(&client, argument_bytes(name));
    loop {
        let proposal = tokio::select! {
            proposal = observer.next() => proposal?,
            () = signals.received() => return Ok(()),
        };
        let leader = RangeResponse {
            header: Some(proposal.header),
            kvs: vec![proposal.kv],
            ..RangeResponse::default()
        };
        globals.printer.print(&Answer::Range(&leader))?;
    }
}

/// Leads from the election to a signal.
async fn campaign(name: &OsString, proposal: &OsString, globals: &Globals) -> Result<(), Failure> {
    let client = connect_without_timeout(globals).await?;
    // Until there is something to release, a signal ends the program.
    let session = Session::start(&client, SessionOptions::default()).await?;
    let mut signals = Signals::new()?;
    let election = Election::new(&session, argument_bytes(name));
    let leadership = tokio::select! {
        elected = election.campaign(argument_bytes(proposal)) => elected.map_err(failed)?,
        () = signals.received() => {
            // Also removes the key of the candidate.
            let _ = session.close().await;
            return Err(canceled());
        }
    };
    let led = lead(&client, &leadership, &mut signals, globals).await;
    let resigned = leadership.resign().await;
    let _ = session.close().await;
    led?;
    resigned.map(drop).map_err(failed)
}

/// Prints the key of the leader and waits for a signal.
async fn lead(
    client: &Client,
    leadership: &Leadership,
    signals: &mut Signals,
    globals: &Globals,
) -> Result<(), Failure> {
    let key = client.range(RangeRequest {
        key: leadership.key().clone(),
        ..RangeRequest::default()
    });
    let key = tokio::select! {
        key = key => key?,
        () = signals.received() => return Err(canceled()),
    };
    globals.printer.print(&Answer::Range(&key))?;
    tokio::select! {
        () = signals.received() => Ok(()),
        _ = leadership.session().lost() => {
            Err(Failure::new(ExitWith::Error, "elect: session expired"))
        }
    }
}
