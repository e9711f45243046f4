//! `gate history` and `gate watch`: what was decided about the cluster's features, and what is
//! being decided.

use std::collections::BTreeMap;

use clap::Args;
use portunus_client::{Client, ClientError};
use portunus_proto::etcdserverpb::MemberListRequest;
use portunus_proto::portunuspb::{HistoryRequest, WatchRequest};

use super::{ConsistencyArgs, gate_failure};
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
    /// Print the retained decisions after this log index first; 0 starts with the decision in
    /// force
    #[arg(long, default_value_t = 0, value_name = "INDEX")]
    after_index: u64,
}

/// Runs `gate history`.
pub async fn history(args: HistoryArgs, globals: &Globals) -> Result<(), Failure> {
    let serializable = args.consistency.is_serializable()?;
    let request = HistoryRequest { serializable };
    let mut client = globals.connect().await?;
    let mut response = client.gate_history(request).await;
    if response.as_ref().is_err_and(ClientError::is_unimplemented) {
        client = connect_to_gate_servers(globals).await?;
        response = client.gate_history(request).await;
    }
    let response = &response.map_err(gate_failure)?;
    let mut names = member_names(&client).await;
    // The member list may be that of another endpoint, which is not of this cluster.
    let is_named = |id: u64| id == 0 || names.0.contains_key(&id);
    let all_named = response.decisions.iter().all(|it| is_named(it.decided_by));
    if !all_named && globals.client.endpoints.len() > 1 {
        names = member_names(&connect_to_gate_servers(globals).await?).await;
    }
    let names = &names;
    let answer = GateAnswer::History { response, names };
    globals.printer.print(&Answer::Gate(answer))
}

/// Runs `gate watch`.
pub async fn watch(args: WatchArgs, globals: &Globals) -> Result<(), Failure> {
    // From the start: after a lost connection the client may use any of its endpoints.
    let client = connect_to_gate_servers(globals).await?;
    let names = &member_names(&client).await;
    let mut watcher = client.gate_watch(WatchRequest {
        after_index: args.after_index,
    });
    loop {
        let response = &watcher.next().await.map_err(gate_failure)?;
        let answer = GateAnswer::Event { response, names };
        globals.printer.print(&Answer::Gate(answer))?;
    }
}

/// A client without the endpoints whose server does not know decisions, such as Go's etcd; with
/// all endpoints if none does, so that the server's error is shown.
async fn connect_to_gate_servers(globals: &Globals) -> Result<Client, Failure> {
    let mut requests = Vec::new();
    for endpoint in &globals.client.endpoints {
        let client = globals.client_of(endpoint)?;
        let answer = tokio::spawn(async move {
            client.ready().await?;
            let serializable = true;
            client.gate_history(HistoryRequest { serializable }).await
        });
        requests.push((endpoint, answer));
    }
    let mut endpoints = Vec::new();
    for (endpoint, answer) in requests {
        if !matches!(answer.await, Ok(Err(error)) if error.is_unimplemented()) {
            endpoints.push(endpoint.clone());
        }
    }
    if endpoints.is_empty() {
        return globals.connect().await;
    }
    globals.connect_to_any(endpoints).await
}

/// The names of members. Without an answer there are none, and ids are shown.
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
