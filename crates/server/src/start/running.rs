//! A started member, and its orderly stop.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::publish::joined;
use crate::handles::stop::StopReason;
use crate::member::Member;
use crate::serve::{MetricsServers, Servers};

/// A running member.
pub struct Running {
    /// The handles that its threads and services share.
    pub member: Arc<Member>,
    /// The servers for clients.
    pub servers: Servers,
    pub(super) metrics_servers: MetricsServers,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Logs that the member serves clients. The caller must be ready to stop the member.
    pub fn log_ready(&self) {
        let member = &self.member;
        tracing::info!(
            name = member.process.config.name,
            member = %member.cluster.own_id(),
            cluster = %member.cluster.identity.cluster_id,
            addresses = joined(&self.servers.addresses),
            took_ms = member.process.started.elapsed().as_millis() as u64,
            "ready to serve client requests"
        );
    }

    /// Stops the servers for clients first, then the log, then the store.
    pub fn stop(self) -> StopReason {
        let stop = &self.member.process.stop;
        stop.stop(StopReason::Requested("stopped"));
        self.servers.join();
        self.metrics_servers.join();
        self.member.consensus.stop();
        self.member.peers.stop();
        for thread in self.threads {
            // A panic ends the process anyway.
            let _ = thread.join();
        }
        stop.reason().unwrap_or(StopReason::Requested("stopped"))
    }
}
