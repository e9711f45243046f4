//! Leases of objects that expire.
//!
//! A lease costs the store more than a key, so objects written within a short time share one, as
//! in kube-apiserver: a lease is reused for a part of its TTL and for a number of objects, and its
//! TTL is longer by that part, so that no object expires early. The store deletes the objects;
//! nothing renews a lease, and an object that is written again moves to a newer one.

use std::time::Duration;

use portunus_client::kubernetes::{Error, Interface};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a lease is reused at most.
const REUSE_MAX: Duration = Duration::from_secs(60);
/// The part of a TTL for which a lease is reused: one in so many, which is 5 %.
const REUSE_DIVISOR: u32 = 20;
/// The most objects of a lease. Their deletion is one transaction of the store.
const OBJECTS_MAX: usize = 1000;

/// Returns how long a lease for objects with a TTL is reused.
fn reuse_window(ttl: Duration) -> Duration {
    REUSE_MAX.min(ttl / REUSE_DIVISOR)
}

/// The lease that was granted last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Granted {
    id: i64,
    expires_at: Instant,
    objects: usize,
}

/// Decides when a lease is reused.
#[derive(Debug, Default)]
struct Reuse {
    last: Option<Granted>,
}

impl Reuse {
    /// Returns the last lease, if it fits one more object: the object lives at least for its TTL,
    /// and at most for the window longer.
    fn take(&mut self, ttl: Duration, now: Instant) -> Option<i64> {
        let last = self.last.as_mut()?;
        let lives_long_enough = now + ttl <= last.expires_at;
        let lives_too_long = now + ttl + reuse_window(ttl) < last.expires_at;
        if !lives_long_enough || lives_too_long || last.objects >= OBJECTS_MAX {
            return None;
        }
        last.objects += 1;
        Some(last.id)
    }

    /// Remembers a lease that was granted for its first object.
    fn add(&mut self, id: i64, lease_ttl: Duration, now: Instant) {
        self.last = Some(Granted {
            id,
            expires_at: now + lease_ttl,
            objects: 1,
        });
    }
}

/// The leases of a server.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Held while a lease is granted: requests meanwhile wait for it and share it.
    reuse: Mutex<Reuse>,
}

impl Leases {
    /// Returns a lease for an object that is written now.
    pub(crate) async fn lease(&self, store: &dyn Interface, ttl: Duration) -> Result<i64, Error> {
        let mut reuse = self.reuse.lock().await;
        // Before the request to the store: the lease expires later than assumed, never earlier.
        let now = Instant::now();
        if let Some(id) = reuse.take(ttl, now) {
            return Ok(id);
        }
        let lease_ttl = ttl + reuse_window(ttl);
        let id = store.grant_lease(lease_ttl).await?;
        reuse.add(id, lease_ttl, now);
        Ok(id)
    }

    /// Forgets a lease that the store does not have, so that the next object gets another one.
    pub(crate) async fn forget(&self, id: i64) {
        let mut reuse = self.reuse.lock().await;
        reuse.last = reuse.last.filter(|last| last.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    fn granted(ttl: Duration, now: Instant) -> Reuse {
        let mut reuse = Reuse::default();
        reuse.add(7, ttl + reuse_window(ttl), now);
        reuse
    }

    #[test]
    fn window_is_a_part_of_the_ttl_and_limited() {
        assert_eq!(reuse_window(HOUR), Duration::from_secs(60));
        assert_eq!(reuse_window(Duration::from_secs(100)), 5 * SECOND);
    }

    /// Proves: K16
    #[test]
    fn lease_is_reused_within_the_window_only() {
        let now = Instant::now();
        let mut reuse = granted(HOUR, now);
        assert_eq!(reuse.take(HOUR, now), Some(7));
        assert_eq!(reuse.take(HOUR, now + 60 * SECOND), Some(7));
        assert_eq!(reuse.take(HOUR, now + 61 * SECOND), None);
    }

    #[test]
    fn lease_is_reused_for_a_limited_number_of_objects() {
        let now = Instant::now();
        let mut reuse = granted(HOUR, now);
        for _ in 1..OBJECTS_MAX {
            assert_eq!(reuse.take(HOUR, now), Some(7));
        }
        assert_eq!(reuse.take(HOUR, now), None);
    }

    #[test]
    fn lease_of_another_ttl_is_not_reused() {
        let now = Instant::now();
        assert_eq!(granted(HOUR, now).take(2 * HOUR, now), None);
        assert_eq!(granted(HOUR, now).take(HOUR / 2, now), None);
    }
}
