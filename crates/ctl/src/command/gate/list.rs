//! `gate list` and `gate status`: which features are on. Cluster features are requested once,
//! server features from every endpoint, because each server decides its own.

use clap::Args;
use portunus_proto::etcdserverpb::FeatureGateStatusRequest;

use super::{ConsistencyArgs, bad_arguments, gate_failure};
use crate::command::members;
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure, write_err};
use crate::print::{Answer, EndpointGates, GateAnswer, GateReport};

/// Flags of `gate list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    endpoints: EndpointArgs,
}

/// Flags of `gate status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Features of either level
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    endpoints: EndpointArgs,
}

#[derive(Debug, Args)]
struct EndpointArgs {
    /// Use all endpoints from the cluster member list
    #[arg(long)]
    cluster: bool,
    #[command(flatten)]
    consistency: ConsistencyArgs,
}

/// Runs `gate list`.
pub async fn list(args: ListArgs, globals: &Globals) -> Result<(), Failure> {
    let report = collect_report(args.endpoints, Vec::new(), globals).await?;
    globals
        .printer
        .print(&Answer::Gate(GateAnswer::List(&report)))
}

/// Runs `gate status`.
pub async fn status(args: StatusArgs, globals: &Globals) -> Result<(), Failure> {
    if args.names.iter().any(String::is_empty) {
        return Err(bad_arguments("a feature name is empty"));
    }
    let report = collect_report(args.endpoints, args.names, globals).await?;
    globals
        .printer
        .print(&Answer::Gate(GateAnswer::Status(&report)))
}

/// Collects the cluster's features and those of each endpoint. An endpoint that does not answer is
/// reported, and fails the command only if no other does. One that does not know gates, as Go's
/// etcd does not, is shown as such; the next one is asked.
async fn collect_report(
    args: EndpointArgs,
    names: Vec<String>,
    globals: &Globals,
) -> Result<GateReport, Failure> {
    let serializable = args.consistency.is_serializable()?;
    let endpoints =
        members::endpoints_with_consistency(args.cluster, !serializable, globals).await?;
    let request = |is_server_feature| FeatureGateStatusRequest {
        is_server_feature,
        features: names.clone(),
        all_known: true,
        serializable,
    };
    let mut requests = Vec::new();
    for endpoint in endpoints {
        let client = globals.client_of(&endpoint)?;
        let (sender, request) = (client.clone(), request(true));
        let answer = tokio::spawn(async move {
            sender.ready().await?;
            sender.feature_gate_status(request).await
        });
        requests.push((endpoint, client, answer));
    }
    let client = globals.connect().await?;
    let mut cluster = match client.feature_gate_status(request(false)).await {
        Err(error) if !error.is_unimplemented() => return Err(gate_failure(error)),
        answer => answer,
    };
    let mut servers = Vec::new();
    let mut gateless = Vec::new();
    for (endpoint, client, answer) in requests {
        // A task fails only if it panics, and a panic ends the process.
        let Ok(answer) = answer.await else { continue };
        match answer {
            Ok(response) => {
                if cluster.is_err() {
                    // The endpoint that was asked first does not know gates.
                    cluster = client.feature_gate_status(request(false)).await;
                }
                servers.push(EndpointGates { endpoint, response });
            }
            Err(error) if error.is_unimplemented() => gateless.push(endpoint),
            Err(error) => {
                let line = format!("Failed to get the gates of endpoint {endpoint} ({error})\n");
                write_err(line.as_bytes());
            }
        }
    }
    if servers.is_empty() && gateless.is_empty() {
        return Err(Failure::reported(ExitWith::Error));
    }
    Ok(GateReport {
        requested: names,
        cluster: cluster.map_err(gate_failure)?,
        servers,
        gateless,
    })
}
