//! Decides whether an accepted connection is served.
//!
//! A refused connection is closed without an answer: any answer would cost more than the
//! refusal saves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use super::Process;
use super::connections::{ConnectionSlot, Connections, TooMany};
use crate::config::{Config, ConnectionLimits};
use crate::listen::EndpointKind;
use crate::log_throttle::LogThrottle;
use crate::metrics::ConnectionMetrics;

/// File descriptors that connections leave to the log, the backend and connections to peers, as
/// in etcd.
pub(crate) const RESERVED_FILES: u64 = 150;

/// Connections of peers, and those for metrics, take at most this part of the file descriptors.
pub(crate) const FILES_PER_PEER_CONNECTION: u64 = 8;

/// The limits of connections, shared by all listeners of one kind.
pub struct Admission {
    kind: EndpointKind,
    metrics: ConnectionMetrics,
    connections: Arc<Connections>,
    refusals: LogThrottle,
}

impl Admission {
    /// Creates the limits of one kind of listener.
    pub fn new(kind: EndpointKind, process: &Process) -> Admission {
        let limits = limits_of(kind, &process.config, open_files());
        let metrics = &process.metrics.limits;
        let metrics = match kind {
            EndpointKind::Client => &metrics.client_connections,
            EndpointKind::Metrics => &metrics.metrics_connections,
            EndpointKind::Peer => &metrics.peer_connections,
        };
        let connections = Connections::new(
            limits.connections_max,
            limits.per_address_max,
            metrics.open.clone(),
        );
        Admission {
            kind,
            metrics: metrics.clone(),
            connections: Arc::new(connections),
            refusals: LogThrottle::default(),
        }
    }

    /// Returns the slot of a connection, which is open until the slot is dropped. Counts and logs
    /// the refusal at a limit.
    ///
    /// # Errors
    /// At a limit: the connection must be closed.
    pub fn admit(&self, address: SocketAddr) -> Result<ConnectionSlot, TooMany> {
        let admitted = self.connections.admit(address.ip());
        if let Err(refused) = admitted {
            self.report(refused, address);
        }
        admitted
    }

    fn report(&self, refused: TooMany, address: SocketAddr) {
        let kind = match self.kind {
            EndpointKind::Client => "client",
            EndpointKind::Metrics => "metrics",
            EndpointKind::Peer => "peer",
        };
        let (counter, limit, max) = match refused {
            TooMany::Connections { max } => (
                &self.metrics.refused_total,
                format!("max-{kind}-connections"),
                max,
            ),
            TooMany::FromAddress { max } => (
                &self.metrics.refused_per_address,
                format!("max-{kind}-connections-per-address"),
                max,
            ),
        };
        counter.inc();
        if let Some(count) = self.refusals.take(Instant::now()) {
            tracing::warn!(
                remote_addr = %address,
                limit,
                max,
                count,
                "rejected connection on {kind} endpoint"
            );
        }
    }
}

/// Returns the limits of one kind of listener with this number of file descriptors. What peers and
/// scrapers may take is left to them by clients, so that no kind uses up the descriptors that the
/// log and the backend need.
fn limits_of(kind: EndpointKind, config: &Config, files: usize) -> ConnectionLimits {
    let share = files / FILES_PER_PEER_CONNECTION as usize;
    let within_share = |limits: ConnectionLimits| ConnectionLimits {
        connections_max: limits.connections_max.min(share),
        ..limits
    };
    let peers = within_share(config.peer_connections);
    let metrics = within_share(config.metrics_connections);
    match kind {
        EndpointKind::Peer => peers,
        EndpointKind::Metrics => metrics,
        EndpointKind::Client => {
            let left = files
                .saturating_sub(RESERVED_FILES as usize)
                .saturating_sub(peers.connections_max)
                .saturating_sub(metrics.connections_max);
            let clients = config.limits.connections;
            ConnectionLimits {
                // With a tiny limit some connections still work.
                connections_max: clients.connections_max.min(left.max(files / 2)),
                ..clients
            }
        }
    }
}

/// Returns the number of file descriptors that the process may have.
fn open_files() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    files.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: &[&str]) -> Config {
        let words: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        Config::from_values(&crate::config::Values::from_arguments(&words)).unwrap()
    }

    #[test]
    fn file_descriptors_are_shared_so_that_the_log_and_the_backend_keep_theirs() {
        use EndpointKind::{Client, Metrics, Peer};
        let unlimited = config(&[
            "--max-client-connections=0",
            "--max-peer-connections=0",
            "--max-metrics-connections=0",
        ]);
        let max = |kind, config, files| limits_of(kind, config, files).connections_max;
        let maxima = |config, files| [Client, Peer, Metrics].map(|kind| max(kind, config, files));
        let standard = config(&[]);
        assert_eq!(maxima(&standard, 1 << 20), [32768, 1024, 512]);
        assert_eq!(maxima(&standard, 1024), [618, 128, 128]);
        assert_eq!(maxima(&unlimited, 1024), [618, 128, 128]);
        assert_eq!(maxima(&unlimited, 64), [32, 8, 8]);
        assert_eq!(limits_of(Peer, &standard, 1024).per_address_max, 512);
        assert_eq!(limits_of(Metrics, &standard, 1024).per_address_max, 256);
    }
}
