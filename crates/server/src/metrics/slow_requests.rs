//! Logs unary requests that took longer than `--warning-unary-request-duration`.
//!
//! Under overload every request is slow, and a line for each would add to the load: so there is
//! at most one line per second, with the number of requests that were not logged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tonic::Code;

use super::rpc::code_name;

/// Shortest time between two lines.
const LINE_PAUSE: Duration = Duration::from_secs(1);

/// Logs slow requests, at most one line per second.
pub(super) struct SlowRequests {
    after: Duration,
    since: Instant,
    /// When the next line may be written, in milliseconds after `since`.
    next_line_ms: AtomicU64,
    unsaid: AtomicU64,
}

impl SlowRequests {
    /// Logs requests that took longer than `after`; zero: none.
    pub fn new(after: Duration) -> SlowRequests {
        SlowRequests {
            after,
            since: Instant::now(),
            next_line_ms: AtomicU64::new(0),
            unsaid: AtomicU64::new(0),
        }
    }

    /// Logs a request that ended, if it was slow.
    pub fn ended(&self, method: &str, code: Code, took: Duration) {
        if self.after.is_zero() || took <= self.after {
            return;
        }
        if let Some(others) = self.may_say(self.since.elapsed()) {
            tracing::warn!(
                method,
                code = code_name(code),
                took_ms = took.as_millis() as u64,
                expected_ms = self.after.as_millis() as u64,
                others,
                "a request took long"
            );
        }
    }

    /// The number of requests that were not logged, if another line may be written now.
    fn may_say(&self, now: Duration) -> Option<u64> {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let pause_ms = LINE_PAUSE.as_millis() as u64;
        let is_first = |next_ms: u64| (now_ms >= next_ms).then_some(now_ms + pause_ms);
        let order = Ordering::Relaxed;
        match self.next_line_ms.fetch_update(order, order, is_first) {
            Ok(_) => Some(self.unsaid.swap(0, order)),
            Err(_) => {
                self.unsaid.fetch_add(1, order);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_are_logged_once_per_second_with_a_count() {
        let slow = SlowRequests::new(Duration::from_millis(300));
        let said: Vec<Option<u64>> = [0, 10, 999, 1000, 1001, 5000]
            .map(|ms| slow.may_say(Duration::from_millis(ms)))
            .to_vec();
        assert_eq!(said, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
