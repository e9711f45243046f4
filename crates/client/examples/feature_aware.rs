//! A client that uses a cluster feature while it is on, and does without it while it is off, before the
//! cluster has it, and on servers that have no gates.
//!
//! A worker holds a lease. With `LeaseCheckpoint`, the remaining time of a lease survives a change of the
//! leader, so the worker takes a long lease and renews it rarely. Without it, a change of the leader
//! starts the time of every lease again, so a worker that died would be missed late: it takes a short
//! one.
//!
//! `cargo run -p portunus-client --example feature_aware -- 127.0.0.1:2379` follows a running store.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::ops::ControlFlow;

use portunus_client::proto::portunuspb::WatchRequest;
use portunus_client::{Client, ClientError, LeaseGuard, Options};

const FEATURE: &str = "LeaseCheckpoint";
const LONG_TTL_S: i64 = 600;
const SHORT_TTL_S: i64 = 10;

/// Which code path the client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodePath {
    /// The feature is on.
    WithFeature,
    /// The feature is off, or the server does not have it.
    Without,
}

/// Calls `on_change` with the code path to take: at once, and whenever the cluster decides otherwise.
pub async fn follow(
    client: &Client,
    mut on_change: impl FnMut(CodePath) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let mut decisions = client.gate_watch(WatchRequest::default());
    let mut current = None;
    loop {
        let path = match decisions.next().await {
            Ok(decision) => {
                let changed = decision.changed.iter();
                match changed.rev().find(|feature| feature.name == FEATURE) {
                    Some(feature) if feature.enabled => CodePath::WithFeature,
                    Some(_) => CodePath::Without,
                    // The first answer has all features that are on, later ones those that changed.
                    None => current.unwrap_or(CodePath::Without),
                }
            }
            // The server has no gates, as etcd: nothing will change.
            Err(ClientError::Unsupported { .. }) => {
                let _ = on_change(CodePath::Without);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if current.replace(path) != Some(path) && on_change(path).is_break() {
            return Ok(());
        }
    }
}

/// Takes the lease of a worker on a code path. The request of the path that needs the feature says so:
/// if the feature was switched off in this moment, the server refuses it instead of doing something
/// else.
pub async fn take_lease(client: &Client, path: CodePath) -> Result<LeaseGuard, Box<dyn Error>> {
    if path == CodePath::WithFeature {
        match client.requiring([FEATURE])?.lease(LONG_TTL_S).await {
            Err(ClientError::Rpc { message, .. }) if message.contains(FEATURE) => {}
            taken => return Ok(taken?),
        }
    }
    Ok(client.lease(SHORT_TTL_S).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::connect(Options {
        endpoints: std::env::args().skip(1).collect(),
        ..Options::default()
    })?;
    follow(&client, |path| {
        println!("the worker goes on {path:?} of {FEATURE}");
        ControlFlow::Continue(())
    })
    .await?;
    Ok(())
}
