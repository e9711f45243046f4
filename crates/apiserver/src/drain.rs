//! The end of a server, in phases.
//!
//! ```text
//!  serving ──▶ not ready ──(shutdown delay)──▶ watches end ──(bound)──▶ closed
//! ```
//!
//! Clients that balance over several servers stop sending to one that is not ready, before any
//! request is refused. Watches end before connections do, so that their clients resume elsewhere.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// How far the end of the server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Every request is served.
    Serving,
    /// Every request is served, and `/readyz` fails.
    NotReady,
    /// No connection is accepted, watches end, and other requests finish.
    Ending,
}

/// The phase of a server. Clones share it.
#[derive(Debug, Clone)]
pub struct Drain {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for Drain {
    fn default() -> Drain {
        Drain {
            phase: Arc::new(watch::Sender::new(Phase::Serving)),
        }
    }
}

impl Drain {
    /// Creates the phase of a server that serves.
    #[must_use]
    pub fn new() -> Drain {
        Drain::default()
    }

    /// Returns the current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Makes the server not ready, waits, and begins to end. Called again, it returns once the
    /// server is ending.
    pub async fn begin(&self, delay: Duration) {
        let is_first = self.advance(Phase::NotReady);
        if !is_first {
            return self.ending().await;
        }
        tracing::info!(delay_ms = delay.as_millis(), "draining: not ready any more");
        sleep(delay).await;
        self.advance(Phase::Ending);
        tracing::info!("draining: watches end and connections close");
    }

    /// Returns once watches must end. A watch selects on it beside its events.
    pub async fn ending(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives as long as this value.
        let _ = phase.wait_for(|phase| *phase >= Phase::Ending).await;
    }

    /// Moves on to a phase; returns whether it was not reached before.
    fn advance(&self, to: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let is_new = *phase < to;
            *phase = to.max(*phase);
            is_new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn phases_follow_each_other_after_the_delay() {
        let drain = Drain::new();
        let delay = Duration::from_secs(10);
        let beginning = tokio::spawn({
            let drain = drain.clone();
            async move { drain.begin(delay).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(drain.phase(), Phase::NotReady);
        let soon = tokio::time::timeout(delay / 2, drain.ending()).await;
        assert!(soon.is_err(), "watches ended before the delay");
        drain.ending().await;
        assert_eq!(drain.phase(), Phase::Ending);
        beginning.await.unwrap();
        // A second signal does not delay again.
        drain.begin(delay).await;
    }
}
