//! How often the store is asked for the progress of a stream of watches.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The times of the last requests by stream. There are as many streams as resources.
#[derive(Debug, Default)]
pub(crate) struct ProgressRequests {
    last: Mutex<HashMap<String, Instant>>,
}

impl ProgressRequests {
    /// Returns whether the last request of a stream is at least an interval ago, and if so counts
    /// one now: watches of one stream share the answer.
    pub(crate) fn is_due(&self, stream: &str, interval: Duration) -> bool {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.get_mut(stream) {
            Some(time) if now.duration_since(*time) < interval => false,
            Some(time) => {
                *time = now;
                true
            }
            None => {
                last.insert(stream.to_owned(), now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_one_stream_share_a_request() {
        let requests = ProgressRequests::default();
        let long = Duration::from_secs(3600);
        assert!(requests.is_due("a", long));
        assert!(!requests.is_due("a", long));
        assert!(requests.is_due("b", long));
        assert!(requests.is_due("a", Duration::ZERO));
    }
}
