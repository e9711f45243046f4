//! Limits the bytes of large range responses that wait to be sent, over all clients.
//!
//! A response is built before its client takes it, and a client may take it slowly or never.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus::IntGauge;

/// Responses shorter than this are not counted.
pub const LARGE_BYTES: usize = 256 * 1024;

/// The bytes of large responses in flight.
#[derive(Debug)]
pub struct RangeBudget {
    bytes_max: usize,
    in_flight: AtomicUsize,
    gauge: IntGauge,
}

impl RangeBudget {
    /// Creates an unused budget; its use is reported to `gauge`.
    pub fn new(bytes_max: usize, gauge: IntGauge) -> RangeBudget {
        RangeBudget {
            bytes_max,
            in_flight: AtomicUsize::new(0),
            gauge,
        }
    }

    /// Takes the bytes of a large response until the returned value is dropped; `None` if there
    /// are too many. A single response may exceed the budget, so that any range can be answered.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<RangeBytes> {
        let taken =
            self.in_flight
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |in_flight| {
                    let sum = in_flight.checked_add(bytes)?;
                    (in_flight == 0 || sum <= self.bytes_max).then_some(sum)
                });
        taken.ok()?;
        self.gauge.add(int(bytes));
        Some(RangeBytes {
            budget: Arc::clone(self),
            bytes,
        })
    }
}

/// The bytes of one large response in flight.
#[derive(Debug)]
pub struct RangeBytes {
    budget: Arc<RangeBudget>,
    bytes: usize,
}

impl Drop for RangeBytes {
    fn drop(&mut self) {
        self.budget
            .in_flight
            .fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.gauge.sub(int(self.bytes));
    }
}

fn int(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_shared_and_a_single_response_may_exceed_it() {
        let gauge = IntGauge::new("bytes", "bytes").unwrap();
        let budget = Arc::new(RangeBudget::new(100, gauge.clone()));
        let huge = budget.take(1000).unwrap();
        assert!(budget.take(1).is_none());
        drop(huge);
        let (first, second) = (budget.take(60).unwrap(), budget.take(40).unwrap());
        assert!(budget.take(1).is_none());
        assert_eq!(gauge.get(), 100);
        drop(first);
        assert!(budget.take(61).is_none());
        drop((budget.take(60).unwrap(), second));
        assert_eq!(gauge.get(), 0);
    }
}
