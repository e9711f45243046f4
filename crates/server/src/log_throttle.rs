//! Keeps log lines about clients few, however many clients cause them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// Decides which events of one kind are logged: at most one in [`INTERVAL`].
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    logged_at: Option<Instant>,
    skipped: u64,
}

impl LogThrottle {
    /// Returns the number of events since the last line if this event shall be logged.
    pub fn take(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = state.logged_at.is_none_or(|at| now >= at + INTERVAL);
        if !is_due {
            state.skipped += 1;
            return None;
        }
        state.logged_at = Some(now);
        Some(std::mem::take(&mut state.skipped) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_per_interval_is_logged_with_the_number_of_skipped_ones() {
        let throttle = LogThrottle::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let times = [0, 1, 9_999, 10_000, 10_001, 30_000, 50_000];
        let taken = times.map(|ms| throttle.take(after(ms)));
        assert_eq!(
            taken,
            [Some(1), None, None, Some(3), None, Some(2), Some(1)]
        );
    }
}
