//! Limits the rate of events per key, such as a client's address, in bounded memory.
//!
//! For requests of callers that are not known yet, such as failed logins. A key has a bucket
//! of tokens that fills at a constant rate; an event without a token is refused. No key can
//! use up the tokens of another one while there is room for both.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time between two removals of full buckets.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The rate and the memory of a [`RateLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitOptions {
    /// Events per second in the long run; at least 1.
    pub per_second: u32,
    /// Events at once; at least 1.
    pub burst: u32,
    /// Keys that are told apart. Further ones share one bucket until there is room.
    pub keys_max: usize,
}

/// The buckets of all keys.
#[derive(Debug)]
pub struct RateLimit<K> {
    /// The time in which a bucket gets a token.
    interval: Duration,
    /// The time in which an empty bucket fills.
    fill: Duration,
    keys_max: usize,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    /// When the bucket of a key is full again.
    by_key: HashMap<K, Duration>,
    /// The same for all keys without a bucket of their own.
    shared: Duration,
    swept_at: Duration,
}

impl<K: Hash + Eq> RateLimit<K> {
    /// Creates full buckets.
    #[must_use]
    pub fn new(options: RateLimitOptions) -> RateLimit<K> {
        let interval = Duration::from_secs(1) / options.per_second.max(1);
        RateLimit {
            interval,
            fill: interval * options.burst.max(1),
            keys_max: options.keys_max,
            buckets: Mutex::new(Buckets {
                by_key: HashMap::new(),
                shared: Duration::ZERO,
                swept_at: Duration::ZERO,
            }),
        }
    }

    /// Takes a token of the key; false if there is none. `now` is any time that never goes back.
    #[must_use]
    pub fn allow(&self, key: K, now: Duration) -> bool {
        let mut buckets = self.lock();
        let buckets = &mut *buckets;
        let is_crowded = buckets.by_key.len() >= self.keys_max;
        if is_crowded && now >= buckets.swept_at + SWEEP_INTERVAL {
            // A full bucket is as good as none.
            buckets.by_key.retain(|_, full_at| *full_at > now);
            buckets.swept_at = now;
        }
        let has_room = buckets.by_key.len() < self.keys_max;
        match buckets.by_key.get_mut(&key) {
            Some(full_at) => self.take(full_at, now),
            None if has_room => {
                let mut full_at = now;
                let is_taken = self.take(&mut full_at, now);
                buckets.by_key.insert(key, full_at);
                is_taken
            }
            None => self.take(&mut buckets.shared, now),
        }
    }

    /// Whether the key has no token, without taking one.
    #[must_use]
    pub fn is_exhausted(&self, key: &K, now: Duration) -> bool {
        let buckets = self.lock();
        let is_crowded = buckets.by_key.len() >= self.keys_max;
        let mut full_at = match buckets.by_key.get(key) {
            Some(full_at) => *full_at,
            None if is_crowded => buckets.shared,
            None => return false,
        };
        !self.take(&mut full_at, now)
    }

    fn lock(&self) -> MutexGuard<'_, Buckets<K>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
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
    use super::*;

    const OPTIONS: RateLimitOptions = RateLimitOptions {
        per_second: 10,
        burst: 5,
        keys_max: 100,
    };

    fn allowed(limit: &RateLimit<u32>, key: u32, now: Duration) -> usize {
        let count = (0..1000).filter(|_| limit.allow(key, now)).count();
        assert!(limit.is_exhausted(&key, now));
        count
    }

    #[test]
    fn burst_is_allowed_and_then_the_rate() {
        let limit = RateLimit::new(OPTIONS);
        let at = Duration::from_millis;
        assert_eq!(allowed(&limit, 1, at(0)), 5);
        assert_eq!(allowed(&limit, 1, at(99)), 0);
        assert_eq!(allowed(&limit, 1, at(100)), 1);
        assert_eq!(allowed(&limit, 1, at(400)), 3);
        assert_eq!(allowed(&limit, 1, at(60_000)), 5);
    }

    #[test]
    fn one_key_takes_nothing_from_another() {
        let limit = RateLimit::new(OPTIONS);
        assert_eq!(allowed(&limit, 1, Duration::ZERO), 5);
        assert_eq!(allowed(&limit, 2, Duration::ZERO), 5);
    }

    #[test]
    fn memory_is_bounded_and_keys_without_a_bucket_share_one() {
        let limit = RateLimit::new(OPTIONS);
        let count = || limit.buckets.lock().unwrap().by_key.len();
        // Two seconds later the first ones are full again and make room.
        for second in 0..10 {
            let now = Duration::from_secs(2 * second);
            let numbers = 0..100;
            let all = numbers.map(|number| allowed(&limit, number + 1000 * second as u32, now));
            assert_eq!(all.sum::<usize>(), 500, "second {second}");
            let crowd = (0..10_000).map(|number| 1_000_000 + number);
            let taken = crowd.filter(|from| limit.allow(*from, now)).count();
            assert_eq!((taken, count()), (5, 100), "second {second}");
        }
    }
}
