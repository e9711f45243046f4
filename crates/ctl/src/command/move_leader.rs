//! `move-leader`: transfers leadership to another member. Only the leader can do that, so it must
//! be among the endpoints.

use clap::Args;
use portunus_client::Client;
use portunus_proto::etcdserverpb::MoveLeaderRequest;

use crate::globals::Globals;
use crate::go::integer;
use crate::outcome::{ExitWith, Failure};
use crate::print::Answer;

/// Flags of `move-leader`.
#[derive(Debug, Args)]
pub struct MoveLeaderArgs {
    #[arg(value_name = "TRANSFEREE_MEMBER_ID")]
    arguments: Vec<String>,
}

/// Runs the command.
pub async fn run(args: MoveLeaderArgs, globals: &Globals) -> Result<(), Failure> {
    let bad = |message: &str| Failure::new(ExitWith::BadArgs, message);
    let [target] = args.arguments.as_slice() else {
        return Err(bad("move-leader command needs 1 argument"));
    };
    let to = integer::parse_u64(target, 16).map_err(|problem| bad(&problem))?;
    let Some((leader, from)) = find_leader(globals).await? else {
        let endpoints = globals.client.endpoints.join(" ");
        return Err(bad(&format!("no leader endpoint given at [{endpoints}]")));
    };
    let request = MoveLeaderRequest { target_id: to };
    let response = &leader.move_leader(request).await?;
    globals
        .printer
        .print(&Answer::MoveLeader { from, to, response })
}

/// The first endpoint whose member is the leader, and that member's id. Endpoints after it are
/// not asked; one before it that does not answer ends the search, as with etcdctl.
async fn find_leader(globals: &Globals) -> Result<Option<(Client, u64)>, Failure> {
    for endpoint in &globals.client.endpoints {
        let client = globals.connect_to(endpoint).await?;
        let status = client.status().await?;
        let own_id = status.header.map_or(0, |header| header.member_id);
        if status.leader == own_id {
            return Ok(Some((client, own_id)));
        }
    }
    Ok(None)
}
