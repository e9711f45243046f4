//! `member`: lists and changes the members of the cluster.

use clap::{Args, Subcommand};
use portunus_proto::etcdserverpb::{
    MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest,
};

use super::keys::is_serializable;
use crate::globals::Globals;
use crate::go::integer;
use crate::outcome::{ExitWith, Failure};
use crate::peer_urls;
use crate::print::Answer;

/// What to do with members.
#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Adds a member into the cluster
    Add(AddArgs),
    /// Removes a member from the cluster
    Remove(IdArgs),
    /// Updates a member in the cluster
    Update(UpdateArgs),
    /// Lists all members in the cluster
    List(ListArgs),
    /// Promotes a non-voting learner to a voting member
    Promote(IdArgs),
}

/// Flags of `member add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    #[arg(value_name = "NAME")]
    arguments: Vec<String>,
    /// Comma separated peer URLs of the new member
    #[arg(long, default_value = "", hide_default_value = true)]
    peer_urls: String,
    /// Add it as a learner, which has no vote
    #[arg(long)]
    learner: bool,
}

/// Flags of `member remove` and `member promote`.
#[derive(Debug, Args)]
pub struct IdArgs {
    #[arg(value_name = "MEMBER_ID")]
    arguments: Vec<String>,
}

/// Flags of `member update`.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[arg(value_name = "MEMBER_ID")]
    arguments: Vec<String>,
    /// Comma separated new peer URLs of the member
    #[arg(long, default_value = "", hide_default_value = true)]
    peer_urls: String,
}

/// Flags of `member list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Linearizable(l) or serializable(s)
    #[arg(long, default_value = "l")]
    consistency: String,
    // etcdctl takes any and reads none.
    #[arg(hide = true)]
    arguments: Vec<String>,
}

/// Runs the command.
pub async fn run(command: MemberCommand, globals: &Globals) -> Result<(), Failure> {
    match command {
        MemberCommand::Add(args) => add(args, globals).await,
        MemberCommand::Remove(args) => remove(args, globals).await,
        MemberCommand::Update(args) => update(args, globals).await,
        MemberCommand::List(args) => list(args, globals).await,
        MemberCommand::Promote(args) => promote(args, globals).await,
    }
}

async fn add(args: AddArgs, globals: &Globals) -> Result<(), Failure> {
    let name = match args.arguments.as_slice() {
        [] => return Err(bad("member name not provided")),
        [name] => name,
        several => return Err(bad(too_many(several))),
    };
    let request = MemberAddRequest {
        peer_urls: urls(&args.peer_urls)?,
        is_learner: args.learner,
    };
    let added = globals.connect().await?.member_add(request).await?;
    globals.printer.print(&Answer::MemberAdd {
        response: &added,
        name,
        peer_urls: &args.peer_urls,
    })
}

/// A URL among them was probably meant for the flag.
fn too_many(arguments: &[String]) -> String {
    let urls = arguments
        .iter()
        .filter(|argument| argument.to_lowercase().starts_with("http"));
    let hints = urls.map(|url| format!(", did you mean --peer-urls={url}"));
    format!("too many arguments{}", hints.collect::<String>())
}

async fn remove(args: IdArgs, globals: &Globals) -> Result<(), Failure> {
    let id = member_id(&args.arguments)?;
    let request = MemberRemoveRequest { id };
    let removed = globals.connect().await?.member_remove(request).await?;
    globals.printer.print(&Answer::MemberRemove(id, &removed))
}

async fn update(args: UpdateArgs, globals: &Globals) -> Result<(), Failure> {
    let id = member_id(&args.arguments)?;
    let peer_urls = urls(&args.peer_urls)?;
    let request = MemberUpdateRequest { id, peer_urls };
    let updated = globals.connect().await?.member_update(request).await?;
    globals.printer.print(&Answer::MemberUpdate(id, &updated))
}

async fn list(args: ListArgs, globals: &Globals) -> Result<(), Failure> {
    let linearizable = !is_serializable(&args.consistency)?;
    let request = MemberListRequest { linearizable };
    let members = globals.connect().await?.member_list(request).await?;
    globals.printer.print(&Answer::Members(&members))
}

async fn promote(args: IdArgs, globals: &Globals) -> Result<(), Failure> {
    let id = member_id(&args.arguments)?;
    let request = MemberPromoteRequest { id };
    let promoted = globals.connect().await?.member_promote(request).await?;
    globals.printer.print(&Answer::MemberPromote(id, &promoted))
}

fn member_id(arguments: &[String]) -> Result<u64, Failure> {
    let [id] = arguments else {
        return Err(bad("member ID is not provided"));
    };
    integer::parse_u64(id, 16).map_err(|problem| {
        bad(format!(
            "bad member ID arg ({problem}), expecting ID in Hex"
        ))
    })
}

/// The URLs as given, once it is clear that a server will take them.
fn urls(list: &str) -> Result<Vec<String>, Failure> {
    if list.is_empty() {
        return Err(bad("member peer urls not provided"));
    }
    peer_urls::parse_all(list.split(','))
        .map_err(|problem| Failure::new(ExitWith::Error, problem))?;
    Ok(list.split(',').map(str::to_owned).collect())
}

fn bad(message: impl std::fmt::Display) -> Failure {
    Failure::new(ExitWith::BadArgs, message)
}
