//! Whether a peer is reached, and since when; the only place that logs about it.
//!
//! Any success makes a peer active, any failure inactive. A line is written when that
//! changes, when a peer was never reached, and when a peer refuses for a new reason; not
//! for every attempt.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::headers::hex;
use crate::metrics::PeerMetrics;
use crate::sync::lock;

/// Why something did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The peer cannot be reached, or the line broke.
    Broken(String),
    /// The peer answered, and the answer was no.
    Refused(String),
}

impl Failure {
    pub fn broken(error: &dyn std::error::Error) -> Failure {
        Failure::Broken(chain(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Broken(reason) => f.write_str(reason),
            Failure::Refused(reason) => write!(f, "the peer refused: {reason}"),
        }
    }
}

/// An error with its sources in one line.
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
    /// Nothing was tried yet.
    #[default]
    New,
    Active {
        since: Instant,
    },
    Inactive,
    /// The peer was taken away; nothing is logged or counted any more.
    Gone,
}

impl Status {
    pub fn new(local: u64, peer: u64, metrics: Arc<PeerMetrics>) -> Status {
        Status {
            local: hex(local),
            peer: hex(peer),
            metrics,
            state: Mutex::default(),
        }
    }

    /// Something reached the peer, or came from it.
    pub fn activate(&self) {
        let mut state = lock(&self.state);
        if matches!(state.activity, Activity::New | Activity::Inactive) {
            let since = Instant::now();
            state.activity = Activity::Active { since };
            state.last_refusal = None;
            self.metrics.active.set(1);
            tracing::info!(local = self.local, peer = self.peer, "peer became active");
        }
    }

    /// `what` did not work.
    pub fn deactivate(&self, what: &str, failure: &Failure) {
        let mut state = lock(&self.state);
        let new_refusal = match failure {
            Failure::Refused(reason) if state.last_refusal.as_deref() != Some(reason) => {
                state.last_refusal = Some(reason.clone());
                true
            }
            _ => false,
        };
        let (local, peer) = (&self.local, &self.peer);
        match state.activity {
            Activity::Active { .. } => {
                self.metrics.active.set(0);
                self.metrics.disconnected.inc();
                tracing::warn!(local, peer, what, reason = %failure, "peer became inactive");
            }
            Activity::New => {
                tracing::warn!(local, peer, what, reason = %failure, "peer is not reached yet");
            }
            Activity::Inactive if new_refusal => {
                tracing::warn!(local, peer, what, reason = %failure, "peer stays inactive");
            }
            Activity::Inactive => {
                tracing::debug!(local, peer, what, reason = %failure, "peer stays inactive");
            }
            Activity::Gone => return,
        }
        state.activity = Activity::Inactive;
    }

    /// The peer is no peer any more.
    pub fn retire(&self) {
        lock(&self.state).activity = Activity::Gone;
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
    fn activity_starts_with_a_success_and_ends_with_a_failure() {
        let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
        let metrics = Arc::new(metrics.peer("1", "2"));
        let status = Status::new(1, 2, metrics.clone());
        let failure = Failure::Broken("cable".into());
        status.deactivate("dial", &failure);
        assert_eq!(metrics.disconnected.get(), 0, "it was never connected");
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
        status.retire();
        status.activate();
        assert_eq!(status.active_since(), None, "gone is gone");
    }
}
