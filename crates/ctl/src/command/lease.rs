//! `lease`: grant, revoke, look at, keep alive.

use clap::{Args, Subcommand};
use portunus_proto::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest};

use crate::globals::Globals;
use crate::go::integer;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::print::{Answer, Format};

/// What to do with leases.
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Creates leases
    Grant(GrantArgs),
    /// Revokes leases
    Revoke(RevokeArgs),
    /// Gets lease information
    Timetolive(TimeToLiveArgs),
    /// Lists all active leases
    List,
    /// Keeps leases alive (renew)
    KeepAlive(KeepAliveArgs),
}

/// Flags of `lease grant`.
#[derive(Debug, Args)]
pub struct GrantArgs {
    #[arg(value_name = "TTL")]
    arguments: Vec<String>,
}

/// Flags of `lease revoke`.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    #[arg(value_name = "LEASE_ID")]
    arguments: Vec<String>,
}

/// Flags of `lease timetolive`.
#[derive(Debug, Args)]
pub struct TimeToLiveArgs {
    #[arg(value_name = "LEASE_ID")]
    arguments: Vec<String>,
    /// Get keys attached to this lease
    #[arg(long)]
    keys: bool,
}

/// Flags of `lease keep-alive`.
#[derive(Debug, Args)]
pub struct KeepAliveArgs {
    #[arg(value_name = "LEASE_ID")]
    arguments: Vec<String>,
    /// Reset the time to live to its original value and exit
    #[arg(long)]
    once: bool,
}

/// Runs the command.
pub async fn run(command: LeaseCommand, globals: &Globals) -> Result<(), Failure> {
    match command {
        LeaseCommand::Grant(args) => grant(args, globals).await,
        LeaseCommand::Revoke(args) => revoke(args, globals).await,
        LeaseCommand::Timetolive(args) => time_to_live(args, globals).await,
        LeaseCommand::List => {
            let leases = globals.connect_for_data().await?.lease_leases().await;
            let leases = leases.map_err(bad_connection)?;
            globals.printer.print(&Answer::Leases(&leases))
        }
        LeaseCommand::KeepAlive(args) => keep_alive(args, globals).await,
    }
}

async fn grant(args: GrantArgs, globals: &Globals) -> Result<(), Failure> {
    let bad = |message: String| Failure::new(ExitWith::BadArgs, message);
    let [ttl] = args.arguments.as_slice() else {
        return Err(bad("lease grant command needs TTL argument".to_owned()));
    };
    let ttl = integer::parse_i64(ttl, 10).map_err(|problem| bad(format!("bad TTL ({problem})")))?;
    let request = LeaseGrantRequest { ttl, id: 0 };
    let granted = globals.connect_for_data().await?.lease_grant(request).await;
    let granted = granted.map_err(|error| wrapped("failed to grant lease", error.into()))?;
    globals.printer.print(&Answer::LeaseGrant(&granted))
}

async fn revoke(args: RevokeArgs, globals: &Globals) -> Result<(), Failure> {
    let id = lease_id(&args.arguments, "lease revoke command needs 1 argument")?;
    let revoked = globals
        .connect_for_data()
        .await?
        .lease_revoke(LeaseRevokeRequest { id })
        .await;
    let revoked = revoked.map_err(|error| wrapped("failed to revoke lease", error.into()))?;
    globals.printer.print(&Answer::LeaseRevoke(id, &revoked))
}

async fn time_to_live(args: TimeToLiveArgs, globals: &Globals) -> Result<(), Failure> {
    let needed = "lease timetolive command needs lease ID as argument";
    let id = lease_id(&args.arguments, needed)?;
    let keys = args.keys;
    let request = LeaseTimeToLiveRequest { id, keys };
    let response = globals
        .connect_for_data()
        .await?
        .lease_time_to_live(request)
        .await;
    let response = &response.map_err(bad_connection)?;
    globals
        .printer
        .print(&Answer::TimeToLive { response, keys })
}

async fn keep_alive(args: KeepAliveArgs, globals: &Globals) -> Result<(), Failure> {
    let needed = "lease keep-alive command needs lease ID as argument";
    let id = lease_id(&args.arguments, needed)?;
    let client = globals.connect_for_data().await?;
    if args.once {
        let renewed = client.keep_alive_once(id).await.map_err(bad_connection)?;
        return globals.printer.print(&Answer::KeepAlive(&renewed));
    }
    let mut renewals = client.keep_alive(id);
    while let Some(renewed) = renewals.next().await.map_err(bad_connection)? {
        globals.printer.print(&Answer::KeepAlive(&renewed))?;
    }
    if globals.printer.format == Format::Simple {
        write_out(format!("lease {id:016x} expired or revoked.\n").as_bytes())?;
    }
    Ok(())
}

fn lease_id(arguments: &[String], needed: &str) -> Result<i64, Failure> {
    let [id] = arguments else {
        return Err(Failure::new(ExitWith::BadArgs, needed));
    };
    integer::parse_i64(id, 16).map_err(|problem| {
        let message = format!("bad lease ID arg ({problem}), expecting ID in Hex");
        Failure::new(ExitWith::BadArgs, message)
    })
}

fn wrapped(doing: &str, mut failure: Failure) -> Failure {
    failure.message = failure
        .message
        .map(|message| format!("{doing} ({message})"));
    failure
}

/// etcdctl's exit code for any error of these commands.
fn bad_connection(error: portunus_client::ClientError) -> Failure {
    Failure::from(error).exiting_with(ExitWith::BadConnection)
}
