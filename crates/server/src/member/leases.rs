//! The lessor, its clock, and the loops that checkpoint leases and revoke expired ones.

use std::time::Duration;

use portunus_consensus::{Leadership, Role};
use portunus_mvcc::lease::Renewal;
use portunus_proto::etcdserverpb::{
    InternalRaftRequest, LeaseCheckpoint as Checkpoint, LeaseCheckpointRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use portunus_proto::{EtcdError, LeaseId, Term};

use super::Member;
use crate::coarse_timeout::coarse_timeout;
use crate::handles::{ClusterState, Leases, Process};
use crate::peers::ask::{Asked, AskedWithin};
use portunus_features::LeaseCheckpoint;

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

impl Member {
    /// Renews a lease, here or at the leader; returns its new TTL in seconds.
    pub async fn renew(&self, id: LeaseId) -> Result<i64, EtcdError> {
        let timeout = self.process.request_timeout();
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
    pub async fn renew_here(&self, id: LeaseId) -> Result<i64, EtcdError> {
        loop {
            let mut term = self.confirmed_term().await?;
            if !self.leases.lock().exists(id) {
                // The lease may have been granted through another member, which has applied more,
                // or by another leader, which has replaced this one.
                self.store.linearizable().await?;
                term = self.led_term()?;
            }
            let now_ms = self.leases.now_ms();
            let renewed = self.leases.lock().renew(term, id, now_ms);
            match renewed? {
                Renewal::Renewed { ttl_s } => {
                    self.process.metrics.leases_renewed.inc();
                    return Ok(ttl_s);
                }
                // The log holds a shorter remaining TTL, which has to be cleared first.
                Renewal::ClearCheckpointFirst => {
                    let checkpoint = Checkpoint {
                        id: id.0,
                        remaining_ttl: 0,
                    };
                    self.proposals
                        .propose(InternalRaftRequest {
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
    async fn confirmed_term(&self) -> Result<Term, EtcdError> {
        let term = self.led_term()?;
        let ticked_within = ACTIVE_INTERVALS * self.process.config.heartbeat_interval;
        if self.consensus.since_last_tick() < ticked_within {
            return Ok(term);
        }
        self.store.linearizable().await?;
        self.led_term()
    }

    fn led_term(&self) -> Result<Term, EtcdError> {
        let term = self.consensus.led_term();
        term.ok_or(EtcdError::NotPrimaryLessor)
    }

    /// The remaining TTL of a lease, from the leader.
    pub async fn time_to_live(
        &self,
        request: &LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, EtcdError> {
        let timeout = self.process.request_timeout();
        let attempts = async {
            loop {
                let answer = if self.leads() {
                    self.store.linearizable().await?;
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
        let id = LeaseId(request.id);
        let time = self.leases.lock().time_to_live(term, id, now_ms)?;
        Ok(LeaseTimeToLiveResponse {
            header: None,
            id: request.id,
            ttl: time.remaining_s,
            granted_ttl: time.granted_ttl_s,
            keys: match request.keys {
                true => self.store.reader().keys_of(id),
                false => Vec::new(),
            },
        })
    }

    fn leader_urls(&self) -> Option<Vec<String>> {
        let leader = self.consensus.status().leader;
        let membership = self.cluster.membership();
        membership.get(leader.0)?.peer_urls.clone()
    }

    fn asked(&self, urls: Vec<String>) -> AskedWithin {
        let asked = Asked {
            client: self.peers.client().clone(),
            urls,
            timeout: self.process.request_timeout(),
        };
        asked.within(self.cluster.identity.cluster_id)
    }
}

/// Stops the clocks of all leases when another member leads. The new leader's first entry starts
/// the clocks there.
pub async fn follow_leadership(process: &Process, cluster: &ClusterState, leases: &Leases) {
    let mut leadership = cluster.leadership.subscribe();
    loop {
        let closed_term = closed_term(*leadership.borrow_and_update());
        leases.lock().demote(closed_term);
        tokio::select! {
            _ = leadership.changed() => {}
            () = process.stop.stopped() => return,
        }
    }
}

/// The last term this member cannot lead, now or later: a follower may have led its term
/// before, but never will again; a candidate may.
fn closed_term(leadership: Leadership) -> Term {
    match leadership.role {
        Role::Follower | Role::PreCandidate => leadership.term,
        Role::Candidate | Role::Leader => Term(leadership.term.0.saturating_sub(1)),
    }
}

/// Proposes checkpoints of the remaining TTLs of leases, while this member leads and the cluster
/// feature is on.
pub async fn checkpoint(member: &Member) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(CHECKPOINT_INTERVAL) => {}
            () = member.process.stop.stopped() => return,
        }
        let Some(term) = member.consensus.led_term() else {
            continue;
        };
        if !member.cluster.gates.newest().enabled(LeaseCheckpoint) {
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
            member.proposals.propose_as_leader(term, request);
        }
    }
}

/// Proposes to revoke expired leases, while this member leads. The lessor's clocks and the
/// proposal are bound to the same term, so a member that was replaced revokes nothing.
pub async fn revoke_expired(member: &Member) {
    let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = member.process.stop.stopped() => return,
        }
        let Some(term) = member.consensus.led_term() else {
            continue;
        };
        let now_ms = member.leases.now_ms();
        let due = member.leases.lock().due(term, now_ms, EXPIRED_PER_LOOK_MAX);
        for id in due {
            member.process.metrics.leases_expired.inc();
            let request = InternalRaftRequest {
                lease_revoke: Some(LeaseRevokeRequest { id: id.0 }),
                ..InternalRaftRequest::default()
            };
            member.proposals.propose_as_leader(term, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use portunus_gates::cluster::MemberId;

    use super::*;

    /// Leadership changes and the leader's first entry reach the lessor independently, in any
    /// order.
    #[test]
    fn term_is_closed_once_this_member_cannot_lead_it() {
        let closed = |role| {
            closed_term(Leadership {
                leader: MemberId::NONE,
                role,
                term: Term(7),
            })
        };
        assert_eq!(closed(Role::Candidate), Term(6), "it may win");
        assert_eq!(closed(Role::Leader), Term(6));
        assert_eq!(
            closed(Role::Follower),
            Term(7),
            "it may have led and stepped down"
        );
        assert_eq!(closed(Role::PreCandidate), Term(7));
    }
}
