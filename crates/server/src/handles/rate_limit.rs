//! Limits the rate of events per client address, in bounded memory.
//!
//! For requests of callers that are not known yet, such as failed logins. An address has a bucket
//! of tokens that fills at a constant rate; an event without a token is refused. No address can
//! use up the tokens of another one while there is room for both.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::address_block::AddressBlock;

/// The time between two removals of full buckets.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The rate and the memory of a [`RateLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitOptions {
    /// Events per second in the long run; at least 1.
    pub per_second: u32,
    /// Events at once; at least 1.
    pub burst: u32,
    /// Addresses that are told apart. Further ones share one bucket until there is room.
    pub addresses_max: usize,
}

/// The buckets of all addresses.
#[derive(Debug)]
pub struct RateLimit {
    /// The time in which a bucket gets a token.
    interval: Duration,
    /// The time in which an empty bucket fills.
    fill: Duration,
    addresses_max: usize,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    /// When the bucket of an address is full again.
    by_address: HashMap<AddressBlock, Duration>,
    /// The same for all addresses without a bucket of their own.
    shared: Duration,
    swept_at: Duration,
}

impl RateLimit {
    /// Creates full buckets.
    #[must_use]
    pub fn new(options: RateLimitOptions) -> RateLimit {
        let interval = Duration::from_secs(1) / options.per_second.max(1);
        RateLimit {
            interval,
            fill: interval * options.burst.max(1),
            addresses_max: options.addresses_max,
            buckets: Mutex::default(),
        }
    }

    /// Takes a token of the address; false if there is none. `now` is any time that never goes
    /// back.
    #[must_use]
    pub fn allow(&self, address: IpAddr, now: Duration) -> bool {
        let block = AddressBlock::from(address);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = &mut *buckets;
        let is_crowded = buckets.by_address.len() >= self.addresses_max;
        if is_crowded && now >= buckets.swept_at + SWEEP_INTERVAL {
            // A full bucket is as good as none.
            buckets.by_address.retain(|_, full_at| *full_at > now);
            buckets.swept_at = now;
        }
        let has_room = buckets.by_address.len() < self.addresses_max;
        match buckets.by_address.get_mut(&block) {
            Some(full_at) => self.take(full_at, now),
            None if has_room => {
                let mut full_at = now;
                let is_taken = self.take(&mut full_at, now);
                buckets.by_address.insert(block, full_at);
                is_taken
            }
            None => self.take(&mut buckets.shared, now),
        }
    }

    fn take(&self, full_at: &mut Duration, now: Duration) -> bool {
        let next = (*full_at).max(now) + self.interval;
        let is_taken = next <= now + self.fill;
        if is_taken {
            *full_at = next;
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const OPTIONS: RateLimitOptions = RateLimitOptions {
        per_second: 10,
        burst: 5,
        addresses_max: 100,
    };

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    fn allowed(limit: &RateLimit, from: IpAddr, now: Duration) -> usize {
        (0..1000).filter(|_| limit.allow(from, now)).count()
    }

    #[test]
    fn burst_is_allowed_and_then_the_rate() {
        let limit = RateLimit::new(OPTIONS);
        let at = Duration::from_millis;
        assert_eq!(allowed(&limit, address(1), at(0)), 5);
        assert_eq!(allowed(&limit, address(1), at(99)), 0);
        assert_eq!(allowed(&limit, address(1), at(100)), 1);
        assert_eq!(allowed(&limit, address(1), at(400)), 3);
        assert_eq!(allowed(&limit, address(1), at(60_000)), 5);
    }

    #[test]
    fn one_address_takes_nothing_from_another() {
        let limit = RateLimit::new(OPTIONS);
        assert_eq!(allowed(&limit, address(1), Duration::ZERO), 5);
        assert_eq!(allowed(&limit, address(2), Duration::ZERO), 5);
    }

    #[test]
    fn memory_is_bounded_and_addresses_without_a_bucket_share_one() {
        let limit = RateLimit::new(OPTIONS);
        let count = || limit.buckets.lock().unwrap().by_address.len();
        // Two seconds later the first ones are full again and make room.
        for second in 0..10 {
            let now = Duration::from_secs(2 * second);
            let numbers = 0..100;
            let all =
                numbers.map(|number| allowed(&limit, address(number + 1000 * second as u32), now));
            assert_eq!(all.sum::<usize>(), 500, "second {second}");
            let crowd = (0..10_000).map(|number| address(1_000_000 + number));
            let taken = crowd.filter(|from| limit.allow(*from, now)).count();
            assert_eq!((taken, count()), (5, 100), "second {second}");
        }
    }
}
