//! The lessor, its clock, and the loops that checkpoint leases and revoke expired ones.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use portunus_consensus::{Leadership, Role};
use portunus_mvcc::lease::{Lessor, Renewal};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    InternalRaftRequest, LeaseCheckpoint as Checkpoint, LeaseCheckpointRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};

use super::coarse_timeout::coarse_timeout;
use super::{Member, request_timeout};
use crate::peers::ask::{Asked, AskedWithin};
use portunus_features::LeaseCheckpoint;
use portunus_statemachine::SharedLessor;

/// Time between two attempts to reach a leader, or two checks whether a lease is revoked.
const LEADER_RETRY: Duration = Duration::from_millis(50);
/// Time between two checks for leases whose remaining TTL has to be checkpointed.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two checks for expired leases.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);
/// A member that ticked within this many heartbeat intervals knows whether it leads.
const ACTIVE_INTERVALS: u32 = 3;
/// Most leases revoked per check.
const EXPIRED_PER_LOOK_MAX: usize = 500;

/// The lessor and its clock.
pub struct Leases {
    lessor: SharedLessor,
    started: Instant,
}

impl Leases {
    /// Starts the clock at zero.
    pub fn new(lessor: SharedLessor) -> Leases {
        Leases {
            lessor,
            started: Instant::now(),
        }
    }

    /// Milliseconds on the lessor's clock.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Locks the lessor, for one operation.
    pub fn lock(&self) -> MutexGuard<'_, Lessor> {
        self.lessor.lock()
    }
}

impl Member {
    /// Starts the clocks of all leases if this member leads the term whose first entry was
    /// applied, for that term only.
    pub fn start_lease_clocks(&self, term: u64) {
        if self.consensus.led_term() == Some(term) {
            let extend_ms = self.config.election_timeout.as_millis();
            let extend_ms = u64::try_from(extend_ms).unwrap_or(0);
            let now_ms = self.leases.now_ms();
            self.leases.lock().promote(term, now_ms, extend_ms);
        }
    }

    /// Whether this member leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.consensus.status().leader == self.identity.member_id
    }

    /// Renews a lease, here or at the leader; returns its new TTL in seconds.
    pub async fn renew(&self, id: i64) -> Result<i64, EtcdError> {
        let timeout = request_timeout(self.config.election_timeout);
        let attempts = async {
            loop {
                let renewed = if self.leads() {
                    self.renew_here(id).await
                } else {
                    match self.leader_urls() {
                        Some(urls) => self.asked(urls).keep_alive(id).await,
                        None => Err(EtcdError::NoLeader),
                    }
                };
                match renewed {
                    Ok(ttl) => return Ok(ttl),
                    Err(EtcdError::LeaseNotFound) => return Err(EtcdError::LeaseNotFound),
                    // Another member leads now, or will soon.
                    Err(_) => tokio::time::sleep(LEADER_RETRY).await,
                }
            }
        };
        coarse_timeout(timeout, attempts)
            .await
            .unwrap_or(Err(EtcdError::Timeout))
    }

    /// Renews a lease on the leader, where alone the lease clocks run.
    pub async fn renew_here(&self, id: i64) -> Result<i64, EtcdError> {
        loop {
            let term = self.confirmed_term().await?;
            if !self.leases.lock().exists(id) {
                // The lease may have been granted through another member, which has applied more.
                self.applied.wait_for(self.consensus.status().commit).await;
            }
            let now_ms = self.leases.now_ms();
            let renewed = self.leases.lock().renew(term, id, now_ms);
            match renewed? {
                Renewal::Renewed { ttl_s } => {
                    self.metrics.leases_renewed.inc();
                    return Ok(ttl_s);
                }
                // The log holds a shorter remaining TTL, which has to be cleared first.
                Renewal::ClearCheckpointFirst => {
                    let checkpoint = Checkpoint {
                        id,
                        remaining_ttl: 0,
                    };
                    self.propose(InternalRaftRequest {
                        lease_checkpoint: Some(LeaseCheckpointRequest {
                            checkpoints: vec![checkpoint],
                        }),
                        ..InternalRaftRequest::default()
                    })
                    .await?;
                }
                // The lease has expired and is about to be revoked; then it is not found.
                Renewal::AwaitRevoke => tokio::time::sleep(LEADER_RETRY).await,
            }
        }
    }

    /// The term this member leads. A member that did not tick for a while may have been replaced
    /// without knowing it, and confirms its leadership with a quorum first.
    async fn confirmed_term(&self) -> Result<u64, EtcdError> {
        let led_term = || {
            let term = self.consensus.led_term();
            term.ok_or(EtcdError::NotPrimaryLessor)
        };
        let term = led_term()?;
        let ticked_within = ACTIVE_INTERVALS * self.config.heartbeat_interval;
        if self.consensus.since_last_tick() < ticked_within {
            return Ok(term);
        }
        self.linearizable().await?;
        led_term()
    }

    /// The remaining TTL of a lease, from the leader.
    pub async fn time_to_live(
        &self,
        request: &LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, EtcdError> {
        let timeout = request_timeout(self.config.election_timeout);
        let attempts = async {
            loop {
                let answer = if self.leads() {
                    self.linearizable().await?;
                    self.time_to_live_here(request)
                } else {
                    match self.leader_urls() {
                        Some(urls) => self.asked(urls).time_to_live(*request).await,
                        None => Err(EtcdError::NoLeader),
                    }
                };
                match answer {
                    Ok(answer) => return Ok(answer),
                    Err(EtcdError::LeaseNotFound) => return Err(EtcdError::LeaseNotFound),
                    Err(_) => tokio::time::sleep(LEADER_RETRY).await,
                }
            }
        };
        coarse_timeout(timeout, attempts)
            .await
            .unwrap_or(Err(EtcdError::Timeout))
    }

    /// The remaining TTL of a lease as this member knows it, without a header.
    pub fn time_to_live_here(
        &self,
        request: &LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, EtcdError> {
        let now_ms = self.leases.now_ms();
        let term = self.consensus.led_term();
        let time = self.leases.lock().time_to_live(term, request.id, now_ms)?;
        Ok(LeaseTimeToLiveResponse {
            header: None,
            id: request.id,
            ttl: time.remaining_s,
            granted_ttl: time.granted_ttl_s,
            keys: match request.keys {
                true => self.reader().keys_of(request.id),
                false => Vec::new(),
            },
        })
    }

    fn leader_urls(&self) -> Option<Vec<String>> {
        let leader = self.consensus.status().leader;
        let membership = self.membership.load();
        membership.get(leader)?.peer_urls.clone()
    }

    fn asked(&self, urls: Vec<String>) -> AskedWithin {
        let asked = Asked {
            client: self.peers.client().clone(),
            urls,
            timeout: request_timeout(self.config.election_timeout),
        };
        asked.within(self.identity.cluster_id)
    }
}

/// Stops the clocks of all leases when another member leads. The new leader's first entry starts
/// the clocks there.
pub async fn follow_leadership(member: Arc<Member>) {
    let mut leadership = member.leadership.subscribe();
    loop {
        let closed_term = closed_term(*leadership.borrow_and_update());
        member.leases.lock().demote(closed_term);
        tokio::select! {
            _ = leadership.changed() => {}
            () = member.stop.stopped() => return,
        }
    }
}

/// The last term this member cannot lead, now or later: a follower may have led its term
/// before, but never will again; a candidate may.
fn closed_term(leadership: Leadership) -> u64 {
    match leadership.role {
        Role::Follower | Role::PreCandidate => leadership.term,
        Role::Candidate | Role::Leader => leadership.term.saturating_sub(1),
    }
}

/// Proposes checkpoints of the remaining TTLs of leases, while this member leads and the cluster
/// feature is on.
pub async fn checkpoint(member: Arc<Member>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(CHECKPOINT_INTERVAL) => {}
            () = member.stop.stopped() => return,
        }
        let Some(term) = member.consensus.led_term() else {
            continue;
        };
        if !member.cluster_gates.newest().enabled(LeaseCheckpoint) {
            continue;
        }
        loop {
            let now_ms = member.leases.now_ms();
            let checkpoints = member.leases.lock().checkpoints_due(term, now_ms);
            if checkpoints.is_empty() {
                break;
            }
            let request = InternalRaftRequest {
                lease_checkpoint: Some(LeaseCheckpointRequest { checkpoints }),
                ..InternalRaftRequest::default()
            };
            member.propose_as_leader(term, request);
        }
    }
}

/// Proposes to revoke expired leases, while this member leads. The lessor's clocks and the
/// proposal are bound to the same term, so a member that was replaced revokes nothing.
pub async fn revoke_expired(member: Arc<Member>) {
    let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = member.stop.stopped() => return,
        }
        let Some(term) = member.consensus.led_term() else {
            continue;
        };
        let now_ms = member.leases.now_ms();
        let due = member.leases.lock().due(term, now_ms, EXPIRED_PER_LOOK_MAX);
        for id in due {
            member.metrics.leases_expired.inc();
            let request = InternalRaftRequest {
                lease_revoke: Some(LeaseRevokeRequest { id }),
                ..InternalRaftRequest::default()
            };
            member.propose_as_leader(term, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leadership changes and the leader's first entry reach the lessor independently, in any
    /// order.
    #[test]
    fn term_is_closed_once_this_member_cannot_lead_it() {
        let closed = |role| {
            closed_term(Leadership {
                leader: 0,
                role,
                term: 7,
            })
        };
        assert_eq!(closed(Role::Candidate), 6, "it may win");
        assert_eq!(closed(Role::Leader), 6);
        assert_eq!(
            closed(Role::Follower),
            7,
            "it may have led and stepped down"
        );
        assert_eq!(closed(Role::PreCandidate), 7);
    }
}
