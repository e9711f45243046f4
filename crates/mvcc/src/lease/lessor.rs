//! The leases, and who is due.
//!
//! The expiry queue is lazy: a renewal only writes the new time into the lease;
//! the queue finds out when the old time comes and then waits for the new one.
//! So a renewal is one look-up, and a lease costs the queue about one step per
//! lifetime however often it is renewed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use portunus_proto::{EtcdError, leasepb};

use super::checkpoint::CheckpointQueue;

/// The longest time to live a client may ask for, in seconds.
pub const TTL_S_MAX: i64 = 9_000_000_000;

/// Settings of a member's lessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LessorConfig {
    /// Shorter times to live are raised to this. It follows from the election
    /// timeout, so members should agree on it.
    pub min_ttl_s: i64,
    /// How many leases the server can revoke per second; a promotion spreads
    /// expiries so that they stay below it.
    pub revoke_rate_per_s: usize,
    /// How long to wait for a revoke before the lease is handed out again.
    pub retry_interval_ms: u64,
    /// Between checkpoints of a lease's remaining time; `None`: no checkpoints.
    pub checkpoint_interval_s: Option<u32>,
}

impl Default for LessorConfig {
    fn default() -> Self {
        Self {
            min_ttl_s: 2,
            revoke_rate_per_s: 1000,
            retry_interval_ms: 3000,
            checkpoint_interval_s: None,
        }
    }
}

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    /// The lease lives for its full time again.
    Renewed {
        /// That time, in seconds.
        ttl_s: i64,
    },
    /// The log holds a checkpoint that would shorten the lease after the next
    /// election: propose a checkpoint of 0 for it, then renew again.
    ClearCheckpointFirst,
    /// The lease is over but not revoked yet: wait for the revoke, then answer
    /// that it does not exist.
    AwaitRevoke,
}

/// Answer to a time-to-live query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeToLive {
    /// Whole seconds left; negative once it is over and not revoked yet.
    pub remaining_s: i64,
    /// What was granted.
    pub granted_ttl_s: i64,
}

pub(super) struct Lease {
    pub(super) ttl_s: i64,
    /// Last checkpoint; 0 means none.
    pub(super) checkpointed_s: i64,
    /// Meaningful on the primary only.
    pub(super) expiry_ms: u64,
    /// When the lease's entry in the expiry queue comes up; never after
    /// `expiry_ms`, except while it waits to be revoked. Entries with another
    /// time are leftovers.
    pub(super) queued_ms: u64,
    /// When the lease's checkpoint is due; other entries are leftovers.
    pub(super) checkpoint_due_ms: Option<u64>,
}

impl Lease {
    /// What a new leader gives the lease to live.
    pub(super) fn life_s(&self) -> i64 {
        if self.checkpointed_s > 0 {
            self.checkpointed_s
        } else {
            self.ttl_s
        }
    }

    fn record(&self, id: i64, persist_remaining: bool) -> leasepb::Lease {
        let remaining_ttl = if persist_remaining {
            self.checkpointed_s
        } else {
            0
        };
        leasepb::Lease {
            id,
            ttl: self.ttl_s,
            remaining_ttl,
        }
    }
}

/// Queue entries that may be leftovers before they are swept out, beyond one
/// per lease.
const LEFTOVERS_MAX: usize = 1024;

/// All leases of a member. See the module text of [`crate::lease`].
pub struct Lessor {
    pub(super) config: LessorConfig,
    pub(super) leases: HashMap<i64, Lease>,
    /// The term this lessor keeps time for, while its member leads it.
    pub(super) primary_term: Option<u64>,
    /// Promotions for terms up to this one come too late.
    pub(super) closed_term: u64,
    /// Earliest first; empty unless primary.
    pub(super) expiries: BinaryHeap<Reverse<(u64, i64)>>,
    /// Empty unless primary and checkpoints are on.
    pub(super) checkpoints: CheckpointQueue,
}

impl Lessor {
    /// A lessor without leases, not primary.
    #[must_use]
    pub fn new(config: LessorConfig) -> Self {
        Self {
            config,
            leases: HashMap::new(),
            primary_term: None,
            closed_term: 0,
            expiries: BinaryHeap::new(),
            checkpoints: CheckpointQueue::default(),
        }
    }

    /// Replaces all leases by stored ones, as at start or after a snapshot. The
    /// lessor is not primary afterwards.
    pub fn recover(&mut self, records: impl IntoIterator<Item = leasepb::Lease>) {
        self.stop_clocks();
        self.leases.clear();
        for record in records {
            let lease = self.new_lease(record.ttl, record.remaining_ttl);
            self.leases.insert(record.id, lease);
        }
    }

    /// How many leases there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there are no leases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Whether the lease exists.
    #[must_use]
    pub fn exists(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    /// The term for which this lessor keeps time; `None` if it does not.
    #[must_use]
    pub fn primary_term(&self) -> Option<u64> {
        self.primary_term
    }

    /// The lease as stored; the checkpoint is part of it only if asked.
    #[must_use]
    pub fn record(&self, id: i64, persist_remaining: bool) -> Option<leasepb::Lease> {
        self.leases
            .get(&id)
            .map(|lease| lease.record(id, persist_remaining))
    }

    /// Adds a lease and returns what to persist.
    ///
    /// # Errors
    /// Id 0 is nobody's lease (the server picks an id before it proposes); a
    /// time beyond [`TTL_S_MAX`] is too large; an id in use exists already.
    pub fn grant(&mut self, id: i64, ttl_s: i64, now_ms: u64) -> Result<leasepb::Lease, EtcdError> {
        if id == 0 {
            return Err(EtcdError::LeaseNotFound);
        }
        if ttl_s > TTL_S_MAX {
            return Err(EtcdError::LeaseTtlTooLarge);
        }
        if self.exists(id) {
            return Err(EtcdError::LeaseExists);
        }
        let mut lease = self.new_lease(ttl_s, 0);
        let record = lease.record(id, false);
        if self.primary_term.is_some() {
            lease.expiry_ms = after(now_ms, lease.ttl_s);
            lease.queued_ms = lease.expiry_ms;
            self.expiries.push(Reverse((lease.expiry_ms, id)));
        }
        self.leases.insert(id, lease);
        self.schedule_checkpoint(id, now_ms);
        Ok(record)
    }

    /// Removes a lease. The caller deletes its keys in the same transaction.
    ///
    /// # Errors
    /// The lease does not exist.
    pub fn revoke(&mut self, id: i64) -> Result<(), EtcdError> {
        self.leases.remove(&id).ok_or(EtcdError::LeaseNotFound)?;
        self.sweep();
        Ok(())
    }

    /// Lets a lease live for its full time from now on. `term` is the one the member leads.
    ///
    /// # Errors
    /// Only the primary of that term renews; the lease must exist.
    pub fn renew(&mut self, term: u64, id: i64, now_ms: u64) -> Result<Renewal, EtcdError> {
        if self.primary_term != Some(term) {
            return Err(EtcdError::NotPrimaryLessor);
        }
        let lease = self.leases.get_mut(&id).ok_or(EtcdError::LeaseNotFound)?;
        if lease.expiry_ms <= now_ms {
            return Ok(Renewal::AwaitRevoke);
        }
        if self.config.checkpoint_interval_s.is_some() && lease.checkpointed_s > 0 {
            return Ok(Renewal::ClearCheckpointFirst);
        }
        lease.expiry_ms = after(now_ms, lease.ttl_s);
        if lease.expiry_ms < lease.queued_ms {
            // Right after a promotion an expiry can move closer.
            lease.queued_ms = lease.expiry_ms;
            self.expiries.push(Reverse((lease.expiry_ms, id)));
        }
        let ttl_s = lease.ttl_s;
        // It may have become too short for checkpoints before; now it is not.
        self.schedule_checkpoint(id, now_ms);
        self.sweep();
        Ok(Renewal::Renewed { ttl_s })
    }

    /// How long the lease has left. `term` is the one the member leads, if it leads.
    ///
    /// # Errors
    /// The lease must exist; off the primary of that term nobody knows, and clients retry
    /// when told that the leader changed.
    pub fn time_to_live(
        &self,
        term: Option<u64>,
        id: i64,
        now_ms: u64,
    ) -> Result<TimeToLive, EtcdError> {
        let lease = self.leases.get(&id).ok_or(EtcdError::LeaseNotFound)?;
        if term.is_none() || self.primary_term != term {
            return Err(EtcdError::LeaderChanged);
        }
        let remaining_ms = lease.expiry_ms.cast_signed() - now_ms.cast_signed();
        Ok(TimeToLive {
            remaining_s: remaining_ms / 1000,
            granted_ttl_s: lease.ttl_s,
        })
    }

    /// All ids, the one with the least time left first; by id off the primary.
    #[must_use]
    pub fn list(&self) -> Vec<i64> {
        let key = |(id, lease): (&i64, &Lease)| {
            (
                if self.primary_term.is_some() {
                    lease.expiry_ms
                } else {
                    u64::MAX
                },
                *id,
            )
        };
        let mut ids: Vec<(u64, i64)> = self.leases.iter().map(key).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// At most `leases_max` leases that are over, in the order in which they
    /// ended, for the leader of `term` to revoke. One that is still there after the
    /// retry interval is handed out again. None if this lessor keeps time for
    /// another term.
    pub fn due(&mut self, term: u64, now_ms: u64, leases_max: usize) -> Vec<i64> {
        let mut ids = Vec::new();
        if self.primary_term != Some(term) {
            return ids;
        }
        while ids.len() < leases_max {
            match self.expiries.peek() {
                Some(Reverse((queued_ms, _))) if *queued_ms <= now_ms => {}
                _ => break,
            }
            let Some(Reverse((queued_ms, id))) = self.expiries.pop() else {
                break;
            };
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            if lease.queued_ms != queued_ms {
                continue;
            }
            let renewed = lease.expiry_ms > queued_ms;
            lease.queued_ms = if renewed {
                lease.expiry_ms
            } else {
                ids.push(id);
                // Later than now, or this loop would meet it again.
                now_ms.saturating_add(self.config.retry_interval_ms.max(1))
            };
            self.expiries.push(Reverse((lease.queued_ms, id)));
        }
        ids
    }

    fn new_lease(&self, ttl_s: i64, checkpointed_s: i64) -> Lease {
        Lease {
            ttl_s: ttl_s.max(self.config.min_ttl_s),
            checkpointed_s,
            expiry_ms: u64::MAX,
            queued_ms: u64::MAX,
            checkpoint_due_ms: None,
        }
    }

    /// Throws leftovers out of the queues once they outnumber the leases.
    fn sweep(&mut self) {
        let entries_max = 2 * self.leases.len() + LEFTOVERS_MAX;
        let leases = &self.leases;
        if self.expiries.len() > entries_max {
            self.expiries.retain(|Reverse((queued_ms, id))| {
                leases
                    .get(id)
                    .is_some_and(|lease| lease.queued_ms == *queued_ms)
            });
        }
        self.checkpoints.sweep(leases, entries_max);
    }
}

/// The time `seconds` after `now_ms`.
pub(super) fn after(now_ms: u64, seconds: i64) -> u64 {
    now_ms.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leases that come and go, or are renewed for ever, must not leave entries behind.
    #[test]
    fn queues_stay_in_proportion_to_the_leases() {
        let config = LessorConfig {
            checkpoint_interval_s: Some(5),
            ..LessorConfig::default()
        };
        let mut lessor = Lessor::new(config);
        lessor.promote(1, 0, 0);
        lessor.grant(1, 100, 0).unwrap();
        for now_ms in 0..10_000 {
            lessor.grant(2, TTL_S_MAX, now_ms).unwrap();
            lessor.revoke(2).unwrap();
            let _ = lessor.renew(1, 1, now_ms).unwrap();
        }
        assert!(lessor.expiries.len() <= 2 + LEFTOVERS_MAX + 2);
        assert!(lessor.checkpoints.len() <= 2 + LEFTOVERS_MAX + 2);
    }
}
