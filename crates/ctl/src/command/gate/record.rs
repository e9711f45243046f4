//! `gate history` and `gate watch`: what was decided about the cluster's features, and what is
//! being decided.

use std::collections::BTreeMap;

use clap::Args;
use portunus_client::Client;
use portunus_proto::etcdserverpb::MemberListRequest;
use portunus_proto::portunuspb::{HistoryRequest, WatchRequest};

use super::{ConsistencyArgs, refused};
use crate::globals::Globals;
use crate::outcome::Failure;
use crate::print::{Answer, GateAnswer, MemberNames};

/// Flags of `gate history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    consistency: ConsistencyArgs,
}

/// Flags of `gate watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Print decisions after this log index first, as far back as they are kept; 0 begins with
    /// what holds now
    #[arg(long, default_value_t = 0, value_name = "INDEX")]
    after_index: u64,
}

/// Runs `gate history`.
pub async fn history(args: HistoryArgs, globals: &Globals) -> Result<(), Failure> {
    let serializable = args.consistency.is_serializable()?;
    let client = globals.connect()?;
    let response = client.gate_history(HistoryRequest { serializable }).await;
    let response = &response.map_err(refused)?;
    let names = &member_names(&client).await;
    let answer = GateAnswer::History { response, names };
    globals.printer.print(&Answer::Gate(answer))
}

/// Runs `gate watch`.
pub async fn watch(args: WatchArgs, globals: &Globals) -> Result<(), Failure> {
    let client = globals.connect()?;
    let names = &member_names(&client).await;
    let mut watcher = client.gate_watch(WatchRequest {
        after_index: args.after_index,
    });
    loop {
        let response = &watcher.next().await.map_err(refused)?;
        let answer = GateAnswer::Event { response, names };
        globals.printer.print(&Answer::Gate(answer))?;
    }
}

/// Names for people. Without them ids are shown, so that no answer is no failure.
async fn member_names(client: &Client) -> MemberNames {
    let request = MemberListRequest {
        linearizable: false,
    };
    let members = client.member_list(request).await;
    let members = members.map_or_else(|_| Vec::new(), |list| list.members);
    let named = members.into_iter().filter(|member| !member.name.is_empty());
    let names: BTreeMap<u64, String> = named.map(|member| (member.id, member.name)).collect();
    MemberNames(names)
}
