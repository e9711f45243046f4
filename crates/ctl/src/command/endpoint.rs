//! `endpoint`: asks single members, one connection each.

use std::time::Instant;

use clap::{Args, Subcommand};
use portunus_client::{Client, ClientError};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmType, FeatureGateStatusRequest, HashKvRequest, RangeRequest,
};
use tokio::task::JoinSet;

use super::{gate, members};
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure, write_err};
use crate::print::{
    Answer, EndpointGates, EndpointHashKv, EndpointHealth, EndpointStatus, GateAnswer,
};

/// Flags of `endpoint`.
#[derive(Debug, Args)]
pub struct EndpointArgs {
    /// Use all endpoints from the cluster member list
    #[arg(long, global = true)]
    cluster: bool,
    #[command(subcommand)]
    command: EndpointCommand,
}

#[derive(Debug, Subcommand)]
enum EndpointCommand {
    /// Checks whether the endpoints can commit a proposal
    Health,
    /// Prints the status of the endpoints
    Status,
    /// Prints the hash of the key history of each endpoint
    Hashkv {
        /// Maximum revision to hash; 0 is the latest
        #[arg(long, default_value_t = 0)]
        rev: i64,
    },
    /// Prints whether a feature is on: in the cluster, or on the server of each endpoint
    Featuregate(FeaturegateArgs),
}

#[derive(Debug, Args)]
struct FeaturegateArgs {
    #[arg(value_name = "NAME")]
    arguments: Vec<String>,
    /// Print a server feature, one line per endpoint
    #[arg(long)]
    is_server_feature: bool,
}

/// Runs the command.
pub async fn run(args: EndpointArgs, globals: &Globals) -> Result<(), Failure> {
    // One answer is valid for the whole cluster; `--cluster` asks every member.
    if let EndpointCommand::Featuregate(FeaturegateArgs {
        arguments,
        is_server_feature: false,
    }) = &args.command
        && !args.cluster
    {
        return cluster_feature(arguments, globals).await;
    }
    let endpoints = members::endpoints(args.cluster, globals).await?;
    match args.command {
        EndpointCommand::Health => health(endpoints, globals).await,
        EndpointCommand::Status => status(endpoints, globals).await,
        EndpointCommand::Hashkv { rev } => hash_kv(endpoints, rev, globals).await,
        EndpointCommand::Featuregate(args) => features(endpoints, args, globals).await,
    }
}

async fn health(endpoints: Vec<String>, globals: &Globals) -> Result<(), Failure> {
    let mut checks = JoinSet::new();
    for endpoint in endpoints {
        let client = globals.client_of(&endpoint)?;
        checks.spawn(check_health(endpoint, client));
    }
    // In the order of their answers, as etcdctl lists them.
    let list = checks.join_all().await;
    globals.printer.print(&Answer::Health(&list))?;
    if list.iter().any(|health| health.error.is_some()) {
        return Err(Failure::new(ExitWith::Error, "unhealthy cluster"));
    }
    Ok(())
}

async fn check_health(endpoint: String, client: Client) -> EndpointHealth {
    if let Err(error) = client.log_in().await {
        return EndpointHealth {
            endpoint,
            took: None,
            error: Some(error.to_string()),
        };
    }
    let started = Instant::now();
    // Any key will do: a linearizable read needs a quorum.
    let read = client
        .range(RangeRequest {
            key: "health".into(),
            ..RangeRequest::default()
        })
        .await;
    let took = Some(started.elapsed());
    let error = match read {
        // Being denied took a quorum, too.
        Ok(_) | Err(ClientError::Etcd(EtcdError::PermissionDenied)) => active_alarms(&client).await,
        Err(error) => Some(error.to_string()),
    };
    EndpointHealth {
        endpoint,
        took,
        error,
    }
}

async fn active_alarms(client: &Client) -> Option<String> {
    let Ok(response) = client.alarm(AlarmRequest::default()).await else {
        return Some("Unable to fetch the alarm list".to_owned());
    };
    if response.alarms.is_empty() {
        return None;
    }
    let names = response.alarms.iter().map(|alarm| match alarm.alarm() {
        AlarmType::Nospace => "NOSPACE ",
        AlarmType::Corrupt => "CORRUPT ",
        AlarmType::None => "UNKNOWN ",
    });
    Some(format!("Active Alarm(s): {}", names.collect::<String>()))
}

async fn status(endpoints: Vec<String>, globals: &Globals) -> Result<(), Failure> {
    let mut list = Vec::new();
    let mut failed = false;
    for endpoint in endpoints {
        match globals.connect_to(&endpoint).await?.status().await {
            Ok(response) => list.push(EndpointStatus { endpoint, response }),
            Err(error) => {
                failed = true;
                let line = format!("Failed to get the status of endpoint {endpoint} ({error})\n");
                write_err(line.as_bytes());
            }
        }
    }
    globals.printer.print(&Answer::Status(&list))?;
    if failed {
        return Err(Failure::reported(ExitWith::Error));
    }
    Ok(())
}

async fn hash_kv(endpoints: Vec<String>, rev: i64, globals: &Globals) -> Result<(), Failure> {
    let mut list = Vec::new();
    let mut last_error = None;
    for endpoint in endpoints {
        let request = HashKvRequest { revision: rev };
        match globals.connect_to(&endpoint).await?.hash_kv(request).await {
            Ok(response) => list.push(EndpointHashKv { endpoint, response }),
            Err(error) => {
                let line = format!("Failed to get the hash of endpoint {endpoint} ({error})\n");
                write_err(line.as_bytes());
                last_error = Some(error);
            }
        }
    }
    globals.printer.print(&Answer::HashKv(&list))?;
    match last_error {
        Some(error) => Err(Failure::new(ExitWith::Error, error)),
        None => Ok(()),
    }
}

async fn cluster_feature(arguments: &[String], globals: &Globals) -> Result<(), Failure> {
    let request = feature_request(arguments, false)?;
    let ask = async |client: Client| client.feature_gate_status(request.clone()).await;
    let mut response = ask(globals.connect().await?).await;
    for endpoint in &globals.client.endpoints {
        // Go's etcd does not know the request; the next endpoint may.
        if response.as_ref().is_err_and(ClientError::is_unimplemented) {
            response = ask(globals.connect_to(endpoint).await?).await;
        }
    }
    let response = response.map_err(gate::gate_failure)?;
    let answer = Answer::Gate(GateAnswer::Enabled(&response));
    globals.printer.print(&answer)
}

async fn features(
    endpoints: Vec<String>,
    args: FeaturegateArgs,
    globals: &Globals,
) -> Result<(), Failure> {
    let request = feature_request(&args.arguments, args.is_server_feature)?;
    let mut list = Vec::new();
    let mut last_error = None;
    for endpoint in endpoints {
        let client = globals.connect_to(&endpoint).await?;
        match client.feature_gate_status(request.clone()).await {
            Ok(response) => list.push(EndpointGates { endpoint, response }),
            Err(error) => {
                let line = format!("Failed to get the feature of endpoint {endpoint} ({error})\n");
                write_err(line.as_bytes());
                last_error = Some(error);
            }
        }
    }
    let answer = Answer::Gate(GateAnswer::EndpointsEnabled(&list));
    globals.printer.print(&answer)?;
    last_error.map_or(Ok(()), |error| Err(gate::gate_failure(error)))
}

fn feature_request(
    arguments: &[String],
    is_server_feature: bool,
) -> Result<FeatureGateStatusRequest, Failure> {
    let [name] = arguments else {
        let message = "endpoint featuregate command needs one argument as feature name";
        return Err(Failure::new(ExitWith::BadArgs, message));
    };
    if name.is_empty() {
        return Err(Failure::new(ExitWith::BadArgs, "a feature name is empty"));
    }
    Ok(FeatureGateStatusRequest {
        is_server_feature,
        features: vec![name.clone()],
        ..FeatureGateStatusRequest::default()
    })
}
