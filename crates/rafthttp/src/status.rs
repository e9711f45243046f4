//! Whether a peer is active, and since when; the only module that logs changes of it.
//!
//! Any success makes a peer active, any failure inactive. A line is written when that
//! changes, when a peer was never reached, when a peer refuses for a new reason, and every
//! [`UNREACHABLE_LOG_INTERVAL`] while it stays inactive; not for every attempt. A peer that
//! closes its connections or does not listen is probably restarting: that is logged as info
//! first, and as a warning if it lasts.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::headers::hex;
use crate::metrics::PeerMetrics;
use crate::shared::Shared;
use crate::sync::lock;

/// The interval of log lines about an inactive peer; the same as of etcd's prober.
const UNREACHABLE_LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Why communication with a peer failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The peer closed the connection or does not accept one, as during a restart.
    Disconnected(String),
    /// The peer is unreachable, or the connection broke in another way.
    Broken(String),
    /// The peer answered with a refusal.
    Refused(String),
}

impl Failure {
    /// Classifies the error of a connection.
    pub fn broken(error: &(dyn std::error::Error + 'static)) -> Failure {
        match disconnection(error) {
            Some(reason) => Failure::Disconnected(reason.to_owned()),
            None => Failure::Broken(chain(error)),
        }
    }
}

/// Returns the reason if the peer's process or host ended the connection.
fn disconnection(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
        let http = error.downcast_ref::<hyper::Error>();
        match io {
            Some(io::ErrorKind::ConnectionRefused) => return Some("connection refused"),
            Some(
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe,
            ) => return Some("the peer closed the connection"),
            _ => {}
        }
        if http.is_some_and(|error| error.is_incomplete_message() || error.is_closed()) {
            return Some("the peer closed the connection");
        }
        cause = error.source();
    }
    None
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Disconnected(reason) | Failure::Broken(reason) => f.write_str(reason),
            Failure::Refused(reason) => write!(f, "the peer refused: {reason}"),
        }
    }
}

/// Formats an error with its sources in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error.to_string();
        if !text.ends_with(&inner) {
            text.push_str(": ");
            text.push_str(&inner);
        }
        source = error.source();
    }
    text
}

pub(crate) struct Status {
    local: String,
    peer: String,
    /// Returns the peer's current name, which may be unknown at first and may change.
    name: Box<dyn Fn() -> String + Send + Sync>,
    metrics: Arc<PeerMetrics>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    activity: Activity,
    last_refusal: Option<String>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// No attempt has completed.
    #[default]
    New,
    Active {
        since: Instant,
    },
    Inactive {
        since: Instant,
        logged: Instant,
    },
    /// The peer was removed; nothing is logged or counted.
    Removed,
}

impl Status {
    pub fn of_peer(shared: &Arc<Shared>, peer: u64, metrics: Arc<PeerMetrics>) -> Status {
        let shared_by_name = shared.clone();
        let name = move || {
            let raft = shared_by_name.raft.get();
            raft.and_then(|raft| raft.name_of(peer)).unwrap_or_default()
        };
        Status::new(shared.identity.member_id, peer, Box::new(name), metrics)
    }

    fn new(
        local: u64,
        peer: u64,
        name: Box<dyn Fn() -> String + Send + Sync>,
        metrics: Arc<PeerMetrics>,
    ) -> Status {
        Status {
            local: hex(local),
            peer: hex(peer),
            name,
            metrics,
            state: Mutex::default(),
        }
    }

    /// Marks the peer active.
    pub fn activate(&self) {
        let mut state = lock(&self.state);
        if matches!(state.activity, Activity::New | Activity::Inactive { .. }) {
            let since = Instant::now();
            state.activity = Activity::Active { since };
            state.last_refusal = None;
            self.metrics.active.set(1);
            let (local, peer, name) = (&self.local, &self.peer, (self.name)());
            tracing::info!(local, peer, name, "peer became active");
        }
    }

    /// Marks the peer inactive because `what` failed.
    pub fn deactivate(&self, what: &str, failure: &Failure) {
        let mut state = lock(&self.state);
        let new_refusal = match failure {
            Failure::Refused(reason) if state.last_refusal.as_deref() != Some(reason) => {
                state.last_refusal = Some(reason.clone());
                true
            }
            _ => false,
        };
        let now = Instant::now();
        let (local, peer) = (&self.local, &self.peer);
        let is_expected = matches!(failure, Failure::Disconnected(_));
        let (mut since, mut logged) = (now, now);
        match state.activity {
            Activity::Active { .. } => {
                self.metrics.active.set(0);
                self.metrics.disconnected.inc();
                let name = (self.name)();
                match is_expected {
                    true => {
                        tracing::info!(local, peer, name, what, reason = %failure, "peer became inactive (message send to peer failed)")
                    }
                    false => {
                        tracing::warn!(local, peer, name, what, reason = %failure, "peer became inactive (message send to peer failed)")
                    }
                }
            }
            Activity::New => {
                let name = (self.name)();
                match is_expected {
                    true => {
                        tracing::info!(local, peer, name, what, reason = %failure, "peer not reached yet")
                    }
                    false => {
                        tracing::warn!(local, peer, name, what, reason = %failure, "peer not reached yet")
                    }
                }
            }
            Activity::Inactive {
                since: began,
                logged: last,
            } => {
                since = began;
                logged = last;
                if new_refusal || now.duration_since(last) >= UNREACHABLE_LOG_INTERVAL {
                    logged = now;
                    let name = (self.name)();
                    let seconds = now.duration_since(began).as_secs();
                    tracing::warn!(local, peer, name, what, reason = %failure, seconds, "peer stays inactive");
                } else {
                    tracing::debug!(local, peer, what, reason = %failure, "peer deactivated again");
                }
            }
            Activity::Removed => return,
        }
        state.activity = Activity::Inactive { since, logged };
    }

    /// Marks the peer removed.
    pub fn mark_removed(&self) {
        lock(&self.state).activity = Activity::Removed;
        self.metrics.active.set(0);
    }

    pub fn active_since(&self) -> Option<Instant> {
        match lock(&self.state).activity {
            Activity::Active { since } => Some(since),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn peer_is_active_from_a_success_to_the_next_failure() {
        let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
        let metrics = Arc::new(metrics.peer("1", "2"));
        let name = Box::new(|| "m2".to_owned());
        let status = Status::new(1, 2, name, metrics.clone());
        let failure = Failure::Broken("cable".into());
        status.deactivate("dial", &failure);
        assert_eq!(metrics.disconnected.get(), 0, "it was never active");
        status.activate();
        let since = status.active_since().unwrap();
        status.activate();
        assert_eq!(
            status.active_since(),
            Some(since),
            "still the same activity"
        );
        assert_eq!(metrics.active.get(), 1);
        status.deactivate("dial", &failure);
        status.deactivate("dial", &failure);
        assert_eq!((metrics.active.get(), metrics.disconnected.get()), (0, 1));
        assert_eq!(status.active_since(), None);
        status.mark_removed();
        status.activate();
        assert_eq!(status.active_since(), None, "a removed peer stays removed");
    }

    #[test]
    fn closed_connections_are_distinguished_from_protocol_errors() {
        use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, InvalidData, UnexpectedEof};
        for (kind, expected) in [
            (
                ConnectionRefused,
                Failure::Disconnected("connection refused".into()),
            ),
            (
                ConnectionReset,
                Failure::Disconnected("the peer closed the connection".into()),
            ),
            (
                UnexpectedEof,
                Failure::Disconnected("the peer closed the connection".into()),
            ),
            (InvalidData, Failure::Broken("truncated: chunk".into())),
        ] {
            let error = io::Error::new(kind, "chunk");
            let error = crate::body::CollectError::Broken(axum::Error::new(error));
            assert_eq!(Failure::broken(&error), expected, "{kind:?}");
        }
    }
}
