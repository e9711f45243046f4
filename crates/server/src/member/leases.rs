//! The lessor, its clock, and the loop that has expired leases revoked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portunus_mvcc::lease::Lessor;
use portunus_proto::etcdserverpb::{InternalRaftRequest, LeaseRevokeRequest};

use super::Member;

/// Between two looks for expired leases.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);
/// Leases revoked per look.
const EXPIRED_PER_LOOK_MAX: usize = 500;

/// The lessor. Locked for moments only: by apply for a lookup or a change, by services
/// for a renewal or a question.
pub struct Leases {
    lessor: Mutex<Lessor>,
    started: Instant,
}

impl Leases {
    /// With its clock at zero.
    pub fn new(lessor: Lessor) -> Leases {
        Leases {
            lessor: Mutex::new(lessor),
            started: Instant::now(),
        }
    }

    /// Milliseconds on the lessor's clock.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The lessor itself.
    pub fn lock(&self) -> MutexGuard<'_, Lessor> {
        self.lessor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has expired leases revoked, through the log, while this member is primary.
pub async fn revoke_expired(member: Arc<Member>) {
    let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = member.stop.stopped() => return,
        }
        let due = {
            let mut lessor = member.leases.lock();
            if !lessor.is_primary() {
                continue;
            }
            lessor.due(member.leases.now_ms(), EXPIRED_PER_LOOK_MAX)
        };
        for id in due {
            member.metrics.leases_expired.inc();
            member.propose_and_forget(InternalRaftRequest {
                lease_revoke: Some(LeaseRevokeRequest { id }),
                ..InternalRaftRequest::default()
            });
        }
    }
}
