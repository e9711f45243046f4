//! The leases of a member and their expiry queue.
//!
//! The expiry queue is lazy: a renewal only writes the new expiry time into the
//! lease; when the queued time is reached, the lease is queued again with the
//! new time. So a renewal is one look-up, and a lease costs the queue about one
//! step per time to live, independent of the number of renewals.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use portunus_proto::{EtcdError, LeaseId, Term, leasepb};

use super::checkpoint::CheckpointQueue;

/// The longest time to live a client may ask for, in seconds.
pub const TTL_S_MAX: i64 = 9_000_000_000;

/// Settings of a member's lessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LessorConfig {
    /// Shorter times to live are raised to this. The server derives it from the
    /// election timeout, so it should be equal on all members.
    pub min_ttl_s: i64,
    /// Leases the server can revoke per second; a promotion spreads expiry times to stay below it.
    pub revoke_rate_per_s: usize,
    /// Time to wait for a revoke before `due` returns the lease again.
    pub retry_interval_ms: u64,
    /// Time between checkpoints of a lease's remaining time; `None`: no checkpoints.
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

/// The result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    /// The lease has its full time to live again.
    Renewed {
        /// The time to live, in seconds.
        ttl_s: i64,
    },
    /// The log holds a checkpoint that would shorten the lease after the next
    /// election: propose a checkpoint of 0 for it, then renew again.
    ClearCheckpointFirst,
    /// The lease has expired but is not revoked yet: wait for the revoke, then
    /// answer that the lease does not exist.
    AwaitRevoke,
}

/// Answer to a time-to-live query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeToLive {
    /// Whole seconds left; negative if the lease has expired and is not revoked yet.
    pub remaining_s: i64,
    /// The granted time to live.
    pub granted_ttl_s: i64,
}

pub(super) struct Lease {
    pub(super) ttl_s: i64,
    /// Last checkpoint; 0 means none.
    pub(super) checkpointed_s: i64,
    /// Valid on the primary only.
    pub(super) expiry_ms: u64,
    /// Time of the lease's entry in the expiry queue; never after `expiry_ms`,
    /// except while the lease waits to be revoked. Entries with another time
    /// are stale.
    pub(super) queued_ms: u64,
    /// When the lease's checkpoint is due; entries with another time are stale.
    pub(super) checkpoint_due_ms: Option<u64>,
}

impl Lease {
    /// The time to live that a new leader gives the lease.
    pub(super) fn life_s(&self) -> i64 {
        if self.checkpointed_s > 0 {
            self.checkpointed_s
        } else {
            self.ttl_s
        }
    }

    fn record(&self, id: LeaseId, persist_remaining: bool) -> leasepb::Lease {
        let remaining_ttl = if persist_remaining {
            self.checkpointed_s
        } else {
            0
        };
        leasepb::Lease {
            id: id.0,
            ttl: self.ttl_s,
            remaining_ttl,
        }
    }
}

/// Stale queue entries, beyond one per lease, that are kept before a sweep.
const STALE_ENTRIES_MAX: usize = 1024;

/// All leases of a member. See the module text of [`crate::lease`].
pub struct Lessor {
    pub(super) config: LessorConfig,
    pub(super) leases: HashMap<LeaseId, Lease>,
    /// The term for which this lessor is primary, while its member leads it.
    pub(super) primary_term: Option<Term>,
    /// Promotions for terms up to this one are ignored.
    pub(super) closed_term: Term,
    /// Earliest first; empty unless primary.
    pub(super) expiries: BinaryHeap<Reverse<(u64, LeaseId)>>,
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
            closed_term: Term(0),
            expiries: BinaryHeap::new(),
            checkpoints: CheckpointQueue::default(),
        }
    }

    /// Replaces all leases by stored ones, at start or after a snapshot. The
    /// lessor is not primary afterwards.
    pub fn recover(&mut self, records: impl IntoIterator<Item = leasepb::Lease>) {
        self.clear_expiries();
        self.leases.clear();
        for record in records {
            let lease = self.new_lease(record.ttl, record.remaining_ttl);
            self.leases.insert(LeaseId(record.id), lease);
        }
    }

    /// Number of leases.
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
    pub fn exists(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    /// The term for which this lessor is primary; `None` if it is not.
    #[must_use]
    pub fn primary_term(&self) -> Option<Term> {
        self.primary_term
    }

    /// The record of the lease; it includes the checkpoint only if `persist_remaining` is set.
    #[must_use]
    pub fn record(&self, id: LeaseId, persist_remaining: bool) -> Option<leasepb::Lease> {
        self.leases
            .get(&id)
            .map(|lease| lease.record(id, persist_remaining))
    }

    /// Adds a lease and returns the record to persist.
    ///
    /// # Errors
    /// The id is [`LeaseId::NONE`] (the server picks an id before it proposes), the time to
    /// live exceeds [`TTL_S_MAX`], or the lease exists already.
    pub fn grant(
        &mut self,
        id: LeaseId,
        ttl_s: i64,
        now_ms: u64,
    ) -> Result<leasepb::Lease, EtcdError> {
        if id == LeaseId::NONE {
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
    pub fn revoke(&mut self, id: LeaseId) -> Result<(), EtcdError> {
        self.leases.remove(&id).ok_or(EtcdError::LeaseNotFound)?;
        self.sweep();
        Ok(())
    }

    /// Restarts the lease's time to live. `term` is the term the member leads.
    ///
    /// # Errors
    /// This lessor is not primary for that term, or the lease does not exist.
    pub fn renew(&mut self, term: Term, id: LeaseId, now_ms: u64) -> Result<Renewal, EtcdError> {
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
            // After a promotion extended the lease, a renewal can shorten it.
            lease.queued_ms = lease.expiry_ms;
            self.expiries.push(Reverse((lease.expiry_ms, id)));
        }
        let ttl_s = lease.ttl_s;
        // Its checkpointed time may have been too short for another checkpoint;
        // its full time is not.
        self.schedule_checkpoint(id, now_ms);
        self.sweep();
        Ok(Renewal::Renewed { ttl_s })
    }

    /// Returns the time the lease has left. `term` is the term the member leads, if it leads.
    ///
    /// # Errors
    /// The lease does not exist, or this lessor is not primary for that term; then clients retry
    /// because the leader changed.
    pub fn time_to_live(
        &self,
        term: Option<Term>,
        id: LeaseId,
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

    /// All lease ids: on the primary by time left, least first; elsewhere by id.
    #[must_use]
    pub fn list(&self) -> Vec<LeaseId> {
        let key = |(id, lease): (&LeaseId, &Lease)| {
            (
                if self.primary_term.is_some() {
                    lease.expiry_ms
                } else {
                    u64::MAX
                },
                *id,
            )
        };
        let mut ids: Vec<(u64, LeaseId)> = self.leases.iter().map(key).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns at most `leases_max` expired leases, in the order of expiry, for the leader of
    /// `term` to revoke. A lease that still exists after the retry interval is returned again.
    /// Returns none if this lessor is not primary for `term`.
    pub fn due(&mut self, term: Term, now_ms: u64, leases_max: usize) -> Vec<LeaseId> {
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
                // Later than now, or this loop would pop it again.
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

    /// Removes stale entries from the queues once they outnumber the leases.
    fn sweep(&mut self) {
        let entries_max = 2 * self.leases.len() + STALE_ENTRIES_MAX;
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

    /// Granting, revoking and renewing leases repeatedly must not let the queues grow.
    #[test]
    fn queues_stay_in_proportion_to_the_leases() {
        let config = LessorConfig {
            checkpoint_interval_s: Some(5),
            ..LessorConfig::default()
        };
        let mut lessor = Lessor::new(config);
        lessor.promote(Term(1), 0, 0);
        lessor.grant(LeaseId(1), 100, 0).unwrap();
        for now_ms in 0..10_000 {
            lessor.grant(LeaseId(2), TTL_S_MAX, now_ms).unwrap();
            lessor.revoke(LeaseId(2)).unwrap();
            let _ = lessor.renew(Term(1), LeaseId(1), now_ms).unwrap();
        }
        assert!(lessor.expiries.len() <= 2 + STALE_ENTRIES_MAX + 2);
        assert!(lessor.checkpoints.len() <= 2 + STALE_ENTRIES_MAX + 2);
    }
}
