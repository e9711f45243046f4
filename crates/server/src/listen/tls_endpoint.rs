//! Accepts the TLS connections of one kind of listener, within limits, and reports refusals.
//!
//! Handshakes run in the tasks of their connections, never in the accept loop. A client that is
//! refused is counted and named in the log, at most once a second.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use portunus_tls::{AcceptError, Accepted, ServerTls};
use prometheus::IntCounterVec;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// The time limit of a handshake, as in etcd.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The handshakes in progress; further connections wait, within the time limit of theirs.
const HANDSHAKES_MAX: usize = 1024;

/// The shortest time between two log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The first byte of a TLS connection: a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

/// The kind of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointKind {
    /// For clients.
    Client,
    /// For metrics and probes.
    Metrics,
    /// For other members.
    Peer,
}

/// The protocols of the connections at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Without TLS.
    Plain,
    /// With TLS.
    Tls,
    /// Either: an `http` and an `https` URL have this address.
    Both,
}

/// The TLS connections of one kind of listener.
pub struct TlsEndpoint {
    kind: EndpointKind,
    tls: ServerTls,
    checks_address: bool,
    refused: IntCounterVec,
    handshakes: Semaphore,
    logged: Mutex<Logged>,
}

#[derive(Default)]
struct Logged {
    at: Option<Instant>,
    /// Refusals since then that were not logged.
    suppressed: u64,
}

impl EndpointKind {
    fn label(self) -> &'static str {
        match self {
            EndpointKind::Client => "client",
            EndpointKind::Metrics => "metrics",
            EndpointKind::Peer => "peer",
        }
    }
}

impl TlsEndpoint {
    /// An endpoint that counts refusals in `refused`, by its kind and by reason. With
    /// `checks_address` the names in a client certificate must match the address of the client.
    pub fn new(
        kind: EndpointKind,
        tls: ServerTls,
        checks_address: bool,
        refused: IntCounterVec,
    ) -> TlsEndpoint {
        TlsEndpoint {
            kind,
            tls,
            checks_address,
            refused,
            handshakes: Semaphore::new(HANDSHAKES_MAX),
            logged: Mutex::default(),
        }
    }

    /// Performs the handshake. Returns `None` if the client was refused, which is logged.
    pub async fn accept(&self, stream: TcpStream) -> Option<Accepted<TcpStream>> {
        let remote = stream.peer_addr();
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.handshake(stream)).await;
        let timed_out = AcceptError::TimedOut {
            seconds: HANDSHAKE_TIMEOUT.as_secs(),
        };
        match accepted.unwrap_or(Err(timed_out)) {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                self.report(remote.ok(), &error);
                None
            }
        }
    }

    async fn handshake(&self, stream: TcpStream) -> Result<Accepted<TcpStream>, AcceptError> {
        let address = stream.peer_addr();
        // Waits for the client before it takes one of the places.
        stream
            .readable()
            .await
            .map_err(AcceptError::EndedByClient)?;
        // Never closed.
        let _place = self.handshakes.acquire().await;
        let accepted = self.tls.accept(stream).await?;
        if self.checks_address
            && let Some(client) = &accepted.client
        {
            let address = address.map_err(AcceptError::EndedByClient)?;
            client.check_address(address.ip()).await?;
        }
        Ok(accepted)
    }

    fn report(&self, remote: Option<SocketAddr>, error: &AcceptError) {
        let (endpoint, kind) = (self.kind.label(), error.kind());
        self.refused.with_label_values(&[endpoint, kind]).inc();
        let Some(suppressed) = self.may_log(Instant::now()) else {
            return;
        };
        let remote = remote.map_or_else(String::new, |remote| remote.to_string());
        let error = error.reason();
        match self.kind {
            EndpointKind::Peer => tracing::warn!(
                remote_addr = remote,
                error,
                suppressed,
                "rejected connection on peer endpoint"
            ),
            EndpointKind::Client | EndpointKind::Metrics => tracing::warn!(
                remote_addr = remote,
                error,
                suppressed,
                "rejected connection on client endpoint"
            ),
        }
    }

    /// Returns how many refusals were not logged since the last line, if one may be logged now.
    fn may_log(&self, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged
            .at
            .is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        if !is_due {
            logged.suppressed += 1;
            return None;
        }
        logged.at = Some(now);
        Some(std::mem::take(&mut logged.suppressed))
    }
}

/// Returns whether a connection begins as TLS does; waits for its first byte, for the time limit
/// of a handshake at most. `None`: it ended before.
pub async fn begins_with_tls(stream: &TcpStream) -> Option<bool> {
    let mut first = [0];
    let peeked = tokio::time::timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)).await;
    match peeked {
        Ok(Ok(1)) => Some(first == [HANDSHAKE_RECORD]),
        _ => None,
    }
}
