//! Leases: which keys they hold and when they expire. Time is an argument: the time since the
//! store was created.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

/// A lease.
#[derive(Debug)]
struct Lease {
    ttl: Duration,
    expires: Duration,
    keys: BTreeSet<Bytes>,
}

/// All leases of a store.
#[derive(Debug, Default)]
pub(super) struct Leases {
    by_id: BTreeMap<i64, Lease>,
    granted: i64,
}

impl Leases {
    /// Grants a lease and returns its id.
    pub(super) fn grant(&mut self, ttl: Duration, now: Duration) -> i64 {
        self.granted += 1;
        let lease = Lease {
            ttl,
            expires: now.saturating_add(ttl),
            keys: BTreeSet::new(),
        };
        self.by_id.insert(self.granted, lease);
        self.granted
    }

    pub(super) fn exists(&self, id: i64) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Starts the TTL of a lease again; returns whether the lease exists.
    pub(super) fn renew(&mut self, id: i64, now: Duration) -> bool {
        let Some(lease) = self.by_id.get_mut(&id) else {
            return false;
        };
        lease.expires = now.saturating_add(lease.ttl);
        true
    }

    /// Moves a key from one lease to another; 0 stands for no lease.
    pub(super) fn move_key(&mut self, key: &Bytes, from: i64, to: i64) {
        if let Some(lease) = self.by_id.get_mut(&from) {
            lease.keys.remove(key);
        }
        if let Some(lease) = self.by_id.get_mut(&to) {
            lease.keys.insert(key.clone());
        }
    }

    /// Returns the keys of a lease, in key order.
    pub(super) fn keys(&self, id: i64) -> Option<Vec<Bytes>> {
        let lease = self.by_id.get(&id)?;
        Some(lease.keys.iter().cloned().collect())
    }

    /// Removes a lease and returns its keys, in key order.
    pub(super) fn remove(&mut self, id: i64) -> Option<Vec<Bytes>> {
        let lease = self.by_id.remove(&id)?;
        Some(lease.keys.into_iter().collect())
    }

    /// Returns the leases that have expired by now, those that expired first before the others.
    pub(super) fn expired(&self, now: Duration) -> Vec<i64> {
        let expired = self.by_id.iter().filter(|(_, lease)| lease.expires <= now);
        let mut ids: Vec<_> = expired.map(|(id, lease)| (lease.expires, *id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }
}
