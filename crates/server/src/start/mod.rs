//! The start of a member, as a sequence of steps.
//!
//! ```text
//!  flags ─▶ gates ─▶ listeners ─▶ process ─▶ prepare ─▶ raft ─▶ assemble ─▶ threads
//!                                              │                              │
//!                        directory, store, log, checks      peers, metrics, publish, serve
//! ```
//! A start that fails before raft runs removes what it created.

mod assemble;
mod boot;
mod checks;
mod error;
mod gates;
mod listeners;
mod prepare;
mod process;
mod publish;
mod raft;
mod running;
mod skew;
mod start_line;
mod threads;
mod tls;
mod tokens;

use std::sync::Arc;
use std::time::Instant;

use portunus_features::OwnFeatures;

pub use error::StartError;
pub use running::Running;

use crate::config::Config;
use crate::serve;
use listeners::Listeners;

/// Starts a member. Returns once it serves clients.
pub fn start(config: Config) -> Result<Running, StartError> {
    let started = Instant::now();
    let own = OwnFeatures::declared()?;
    let gates = gates::resolve(&config, &own)?;
    let tokens = tokens::read(&config.auth.tokens)?;
    let listeners = Listeners::bind(&config)?;
    let process = process::open(config, gates, started)?;
    let (process, prepared) = prepare::prepare_or_clean_up(process, &own)?;
    let tls = prepared.tls;
    let (peers, data) = (prepared.peers, (prepared.store, prepared.state));
    let raft = raft::start(&process, prepared.boot, &peers)?;
    let (member, machine) = assemble::assemble(process, &own, data, tokens, peers, &raft);
    let member = Arc::new(member);
    let threads = threads::start(&member, machine, raft.committed)?;
    let remotes = &prepared.remotes;
    publish::connect_peers(&member, listeners.peers, remotes, tls.peers.as_ref())?;
    let metrics_servers = publish::serve_metrics(&member, listeners.metrics, tls.metrics)?;
    publish::publish(&member)?;
    let servers = serve::serve(&member, listeners.clients, tls.clients)?;
    Ok(Running {
        member,
        servers,
        metrics_servers,
        threads,
    })
}
