//! Checkpoints of the remaining time of long leases, so that a change of leader
//! does not restart them with their full time.
//!
//! The primary lessor selects the leases that are due for a checkpoint; the
//! server proposes the checkpoints; every member applies them. Only leases that
//! live longer than the interval get checkpoints. A lease costs the log at most
//! two entries per interval: the checkpoint, and its removal when the lease is
//! renewed.

use std::collections::{HashMap, VecDeque};

use portunus_proto::etcdserverpb::LeaseCheckpoint;
use portunus_proto::{LeaseId, Term, leasepb};

use super::lessor::{Lease, Lessor};

/// Maximum number of checkpoints in one log entry.
pub const CHECKPOINT_BATCH_MAX: usize = 1000;

/// Due times of checkpoints. The interval is the same for all leases and time
/// is monotonic, so entries are queued in due order.
#[derive(Default)]
pub(super) struct CheckpointQueue {
    entries: VecDeque<(u64, LeaseId)>,
}

impl CheckpointQueue {
    pub(super) fn clear(&mut self) {
        self.entries = VecDeque::new();
    }

    /// Queues the lease's next checkpoint if it has none queued and is long enough.
    pub(super) fn schedule(
        &mut self,
        id: LeaseId,
        lease: &mut Lease,
        interval_s: Option<u32>,
        now_ms: u64,
    ) {
        let Some(interval_s) = interval_s else { return };
        if lease.checkpoint_due_ms.is_none() && lease.life_s() > i64::from(interval_s) {
            self.push(id, lease, interval_s, now_ms);
        }
    }

    fn push(&mut self, id: LeaseId, lease: &mut Lease, interval_s: u32, now_ms: u64) {
        // At least a second, so that no checkpoint is due again immediately.
        let due_ms = now_ms.saturating_add(1000 * u64::from(interval_s.max(1)));
        lease.checkpoint_due_ms = Some(due_ms);
        self.entries.push_back((due_ms, id));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn sweep(&mut self, leases: &HashMap<LeaseId, Lease>, entries_max: usize) {
        if self.entries.len() > entries_max {
            self.entries.retain(|(due_ms, id)| {
                leases
                    .get(id)
                    .is_some_and(|lease| lease.checkpoint_due_ms == Some(*due_ms))
            });
        }
    }
}

impl Lessor {
    /// Returns at most [`CHECKPOINT_BATCH_MAX`] checkpoints that are due, for one log entry. Call
    /// again while batches are full. The lease's next checkpoint replaces a proposal that was lost.
    /// Returns none if this lessor is not primary for `term`, which is the term the member leads.
    pub fn checkpoints_due(&mut self, term: Term, now_ms: u64) -> Vec<LeaseCheckpoint> {
        let mut batch = Vec::new();
        if self.primary_term != Some(term) {
            return batch;
        }
        let Some(interval_s) = self.config.checkpoint_interval_s else {
            return batch;
        };
        while batch.len() < CHECKPOINT_BATCH_MAX {
            match self.checkpoints.entries.front() {
                Some((due_ms, _)) if *due_ms <= now_ms => {}
                _ => break,
            }
            let Some((due_ms, id)) = self.checkpoints.entries.pop_front() else {
                break;
            };
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            if lease.checkpoint_due_ms != Some(due_ms) {
                continue;
            }
            lease.checkpoint_due_ms = None;
            if lease.expiry_ms <= now_ms {
                continue;
            }
            let remaining_s = (lease.expiry_ms - now_ms).div_ceil(1000).cast_signed();
            // A lease that was just renewed needs no checkpoint yet.
            if remaining_s < lease.ttl_s {
                batch.push(LeaseCheckpoint {
                    id: id.0,
                    remaining_ttl: remaining_s,
                });
            }
            if remaining_s > i64::from(interval_s) {
                self.checkpoints.push(id, lease, interval_s, now_ms);
            }
        }
        batch
    }

    /// Applies a checkpoint from the log; returns the record if it is to be
    /// persisted. Expiry times do not change: only the next promotion uses the
    /// checkpoint. A checkpoint of a revoked lease is ignored.
    pub fn checkpoint(
        &mut self,
        id: LeaseId,
        remaining_s: i64,
        now_ms: u64,
        persist_remaining: bool,
    ) -> Option<leasepb::Lease> {
        self.leases.get_mut(&id)?.checkpointed_s = remaining_s;
        self.schedule_checkpoint(id, now_ms);
        if persist_remaining {
            self.record(id, true)
        } else {
            None
        }
    }

    pub(super) fn schedule_checkpoint(&mut self, id: LeaseId, now_ms: u64) {
        if self.primary_term.is_none() {
            return;
        }
        if let Some(lease) = self.leases.get_mut(&id) {
            self.checkpoints
                .schedule(id, lease, self.config.checkpoint_interval_s, now_ms);
        }
    }
}
