//! Promotion and demotion of the primary lessor.
//!
//! A promotion iterates over all leases once, sorts them once and builds the
//! queue once, so a million leases delay a new leader by a fraction of a
//! second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use portunus_proto::{LeaseId, Term};

use super::lessor::{Lease, Lessor, after};

impl Lessor {
    /// Makes this lessor primary for `term`: each lease gets its full time, or the time of its last
    /// checkpoint, plus `extend_ms` for the time without a leader. If too many would expire
    /// together, some get more. A promotion for a closed term does nothing.
    pub fn promote(&mut self, term: Term, now_ms: u64, extend_ms: u64) {
        if term <= self.closed_term {
            return;
        }
        self.primary_term = Some(term);
        self.checkpoints.clear();
        let start_ms = now_ms.saturating_add(extend_ms);
        let mut by_expiry: Vec<(u64, LeaseId, &mut Lease)> = self
            .leases
            .iter_mut()
            .map(|(id, lease)| (after(start_ms, lease.life_s()), *id, lease))
            .collect();
        if by_expiry.len() >= self.config.revoke_rate_per_s {
            by_expiry.sort_unstable_by_key(|(expiry_ms, id, _)| (*expiry_ms, *id));
            spread(&mut by_expiry, self.config.revoke_rate_per_s);
        }
        let mut entries = Vec::with_capacity(by_expiry.len());
        let interval_s = self.config.checkpoint_interval_s;
        for (expiry_ms, id, lease) in by_expiry {
            lease.expiry_ms = expiry_ms;
            lease.queued_ms = expiry_ms;
            entries.push(Reverse((expiry_ms, id)));
            lease.checkpoint_due_ms = None;
            self.checkpoints.schedule(id, lease, interval_s, now_ms);
        }
        self.expiries = BinaryHeap::from(entries);
    }

    /// Closes all terms up to `closed_term`: the member leads none of them, now or later. The
    /// outcome does not depend on the order of demotions and promotions.
    pub fn demote(&mut self, closed_term: Term) {
        self.closed_term = self.closed_term.max(closed_term);
        if self.primary_term.is_some_and(|term| term <= closed_term) {
            self.clear_expiries();
        }
    }

    pub(super) fn clear_expiries(&mut self) {
        self.primary_term = None;
        self.expiries = BinaryHeap::new();
        self.checkpoints.clear();
    }
}

/// Delays leases (sorted by expiry) so that at most three quarters of the
/// revoke rate expire per second; the rest of the rate is for other revokes.
///
/// Leases within a second of the first of a pile form one pile, which grows as
/// long as its delayed end reaches the next lease: the n-th lease of a pile
/// ends n / target seconds after the first.
fn spread(by_expiry: &mut [(u64, LeaseId, &mut Lease)], revoke_rate_per_s: usize) {
    let per_second = (3 * revoke_rate_per_s as u64 / 4).max(1);
    let mut base_ms = by_expiry.first().map_or(0, |(expiry_ms, ..)| *expiry_ms);
    let mut pile_end_ms = base_ms.saturating_add(1000);
    let mut in_pile = 0_u64;
    for (expiry_ms, ..) in by_expiry {
        if *expiry_ms > pile_end_ms {
            base_ms = *expiry_ms;
            pile_end_ms = base_ms.saturating_add(1000);
            in_pile = 1;
            continue;
        }
        in_pile += 1;
        if in_pile <= per_second {
            continue;
        }
        let since_base_ms = 1000 * in_pile / per_second;
        let delay_ms = since_base_ms.saturating_sub(*expiry_ms - base_ms);
        pile_end_ms = base_ms.saturating_add(delay_ms);
        *expiry_ms = expiry_ms.saturating_add(delay_ms);
    }
}
