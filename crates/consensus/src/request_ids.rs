//! Request ids that no other member and no earlier run of this member uses.
//!
//! An id is part of the log entry and identifies the waiting client when the entry is applied.
//! Two requests with the same id would get each other's responses, on whichever member they
//! wait.
//!
//! ```text
//!   63        48 47                        8 7       0
//!   ┌───────────┬───────────────────────────┬─────────┐
//!   │ member id │ milliseconds at the start │ counter │
//!   └───────────┴───────────────────────────┴─────────┘
//! ```
//! The counter overflows into the milliseconds: ids stay unique across a
//! restart as long as fewer than 256 per millisecond were used on average.

use std::sync::atomic::{AtomicU64, Ordering};

const COUNTER_BITS: u32 = 8;
const TIME_BITS: u32 = 40;
const SUFFIX_MASK: u64 = (1 << (COUNTER_BITS + TIME_BITS)) - 1;

/// Generates request ids.
#[derive(Debug)]
pub struct RequestIds {
    prefix: u64,
    suffix: AtomicU64,
}

impl RequestIds {
    /// Creates the generator of this member, started at this time.
    #[must_use]
    pub fn new(member_id: u64, unix_ms: u64) -> Self {
        Self {
            prefix: member_id << (COUNTER_BITS + TIME_BITS),
            suffix: AtomicU64::new((unix_ms << COUNTER_BITS) & SUFFIX_MASK),
        }
    }

    /// Returns the next id.
    pub fn next(&self) -> u64 {
        // Only uniqueness matters, not order between threads.
        let suffix = self.suffix.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.prefix | (suffix & SUFFIX_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_layout_equals_etcd() {
        let ids = RequestIds::new(0x12_3456, 0x34_5678);
        assert_eq!(ids.next(), 0x3456_0000_3456_7801);
        assert_eq!(ids.next(), 0x3456_0000_3456_7802);
    }

    #[test]
    fn counter_overflow_keeps_the_member_bits() {
        let ids = RequestIds::new(1, u64::MAX);
        for _ in 0..1000 {
            assert_eq!(ids.next() >> 48, 1);
        }
    }

    #[test]
    fn ids_of_a_later_run_are_greater() {
        let (first, second) = (RequestIds::new(1, 1000), RequestIds::new(1, 1001));
        let last_of_first = (0..255).map(|_| first.next()).max();
        assert!(last_of_first < Some(second.next()));
    }
}
