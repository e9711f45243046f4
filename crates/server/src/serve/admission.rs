//! Decides whether an accepted connection is served.
//!
//! A refused connection is closed without an answer: any answer would cost more than the
//! refusal saves.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use crate::handles::Process;
use crate::handles::connections::{ConnectionSlot, Connections, TooMany};
use crate::log_throttle::LogThrottle;

/// File descriptors that connections leave to the log, the backend and peers, as in etcd.
pub(crate) const RESERVED_FILES: u64 = 150;

/// An accepted connection with its slot.
pub(super) struct Admitted {
    pub(super) stream: TcpStream,
    pub(super) slot: ConnectionSlot,
}

/// The limits of connections, shared by all listeners for clients.
pub(super) struct Admission {
    process: Arc<Process>,
    connections: Arc<Connections>,
    refusals: LogThrottle,
}

impl Admission {
    pub(super) fn new(process: Arc<Process>) -> Admission {
        let limits = &process.config.limits;
        let connections_max = limits.connections_max.min(connections_of_open_files());
        let gauge = process.metrics.limits.connections.clone();
        let per_address_max = limits.connections_per_address_max;
        let connections = Connections::new(connections_max, per_address_max, gauge);
        Admission {
            connections: Arc::new(connections),
            process,
            refusals: LogThrottle::default(),
        }
    }

    /// Returns the connection with its slot; closes it at a limit.
    pub(super) fn admit(&self, stream: TcpStream, address: SocketAddr) -> Option<Admitted> {
        match self.connections.admit(address.ip()) {
            Ok(slot) => Some(Admitted { stream, slot }),
            Err(refused) => {
                drop(stream);
                self.report(refused, address);
                None
            }
        }
    }

    fn report(&self, refused: TooMany, address: SocketAddr) {
        let metrics = &self.process.metrics.limits;
        let (counter, limit, max) = match refused {
            TooMany::Connections { max } => (
                &metrics.connections_refused_total,
                "max-client-connections",
                max,
            ),
            TooMany::FromAddress { max } => (
                &metrics.connections_refused_per_address,
                "max-client-connections-per-address",
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
                "rejected connection on client endpoint"
            );
        }
    }
}

/// Returns the number of connections for which there are file descriptors.
fn connections_of_open_files() -> usize {
    let Some(files) = getrlimit(Resource::Nofile).current else {
        return usize::MAX;
    };
    // With a tiny limit some connections still work.
    let connections = files.saturating_sub(RESERVED_FILES).max(files / 2);
    usize::try_from(connections).unwrap_or(usize::MAX)
}
