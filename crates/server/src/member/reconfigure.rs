//! Membership changes: the checks that etcd makes before a change is proposed.
//!
//! They keep an operator from losing the quorum by accident. Each member checks the invariants
//! again when the change is applied ([`portunus_statemachine::membership`]).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use portunus_consensus::bootstrap::added_member_id;
use portunus_gates::cluster::MemberId;
use portunus_proto::EtcdError;
use portunus_proto::raftpb::ConfChangeType;
use serde::Serialize;

use super::Member;
use crate::coarse_timeout::coarse_timeout;
use crate::peers::ask::Asked;
use portunus_statemachine::membership::{MemberRecord, Membership};

/// A member counts as healthy if it has been connected for this long.
const HEALTHY_AFTER: Duration = Duration::from_secs(5);
/// A learner is ready once it has this share of the leader's log, in percent.
const READY_PERCENT: u64 = 90;
/// Time between two attempts to reach a leader.
const LEADER_RETRY: Duration = Duration::from_millis(50);

/// The context of the configuration change that promotes a learner.
#[derive(Serialize)]
struct Promotion {
    id: u64,
    #[serde(rename = "peerURLs")]
    peer_urls: Option<Vec<String>>,
    #[serde(rename = "isPromote")]
    is_promote: bool,
}

impl Member {
    /// Adds a member; returns it and the membership after the change.
    pub async fn add_member(
        &self,
        peer_urls: Vec<String>,
        is_learner: bool,
    ) -> Result<(MemberRecord, Arc<Membership>), EtcdError> {
        self.check_addition(is_learner)?;
        let now_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let record = MemberRecord {
            id: added_member_id(&peer_urls, now_s),
            peer_urls: Some(peer_urls),
            is_learner,
            name: String::new(),
            client_urls: Vec::new(),
            proposal: None,
        };
        let kind = match is_learner {
            true => ConfChangeType::ConfChangeAddLearnerNode,
            false => ConfChangeType::ConfChangeAddNode,
        };
        let membership = self
            .proposals
            .propose_conf_change(kind, record.id, json(&record))
            .await?;
        Ok((record, membership))
    }

    /// Removes a member permanently.
    pub async fn remove_member(&self, id: u64) -> Result<Arc<Membership>, EtcdError> {
        self.check_removal(id)?;
        let kind = ConfChangeType::ConfChangeRemoveNode;
        self.proposals
            .propose_conf_change(kind, id, Bytes::new())
            .await
    }

    /// Replaces a member's peer URLs.
    pub async fn update_member(
        &self,
        id: u64,
        peer_urls: Vec<String>,
    ) -> Result<Arc<Membership>, EtcdError> {
        let record = MemberRecord {
            id,
            peer_urls: Some(peer_urls),
            is_learner: false,
            name: String::new(),
            client_urls: Vec::new(),
            proposal: None,
        };
        let kind = ConfChangeType::ConfChangeUpdateNode;
        self.proposals
            .propose_conf_change(kind, id, json(&record))
            .await
    }

    /// Promotes a learner to voter; only the leader knows whether it is ready.
    pub async fn promote_member(&self, id: u64) -> Result<Arc<Membership>, EtcdError> {
        let timeout = self.process.request_timeout();
        let attempts = async {
            loop {
                let leader = self.consensus.status().leader;
                if leader == self.cluster.own_id() {
                    return self.promote_here(id).await;
                }
                let membership = self.cluster.membership_full();
                if let Some(leader) = membership.get(leader.0) {
                    let asked = Asked {
                        client: self.peers.client().clone(),
                        urls: leader.peer_urls.clone().unwrap_or_default(),
                        timeout,
                    };
                    let asked = asked.within(self.cluster.identity.cluster_id);
                    match asked.promote(id).await {
                        Ok(_) => {
                            // Committed; this member applies it before it answers.
                            let _ = self.store.linearizable().await;
                            return Ok(self.cluster.membership_full());
                        }
                        Err(
                            refusal @ (EtcdError::MemberNotFound
                            | EtcdError::MemberNotLearner
                            | EtcdError::LearnerNotReady),
                        ) => return Err(refusal),
                        Err(_) => {}
                    }
                }
                tokio::time::sleep(LEADER_RETRY).await;
            }
        };
        match coarse_timeout(timeout, attempts).await {
            Some(outcome) => outcome,
            None if self.consensus.status().leader == MemberId::NONE => Err(EtcdError::NoLeader),
            None => Err(EtcdError::Timeout),
        }
    }

    /// Promotes a learner, on the leader.
    pub async fn promote_here(&self, id: u64) -> Result<Arc<Membership>, EtcdError> {
        if let Err(refusal) = self.check_promotion(id) {
            let reason = refusal.text();
            let refusals = &self.process.metrics.learner_refusals;
            refusals.with_label_values(&[reason]).inc();
            return Err(refusal);
        }
        let promotion = Promotion {
            id,
            peer_urls: None,
            is_promote: true,
        };
        let kind = ConfChangeType::ConfChangeAddNode;
        let promoted = self
            .proposals
            .propose_conf_change(kind, id, json(&promotion))
            .await?;
        self.process.metrics.learner_promotions.inc();
        Ok(promoted)
    }

    /// Transfers leadership to another voter and waits until it leads.
    pub async fn move_leader(&self, to: u64) -> Result<(), EtcdError> {
        let own = self.cluster.own_id();
        if self.consensus.status().leader != own {
            return Err(EtcdError::NotLeader);
        }
        let is_voter = (self.cluster.membership().get(to)).is_some_and(|member| !member.is_learner);
        if !is_voter {
            return Err(EtcdError::BadLeaderTransferee);
        }
        if to == own.0 {
            return Ok(());
        }
        let mut leadership = self.cluster.leadership.subscribe();
        self.consensus.transfer_leader(to);
        let timeout = self.process.request_timeout();
        let moved = leadership.wait_for(|leadership| leadership.leader == MemberId(to));
        match coarse_timeout(timeout, moved).await {
            Some(_) => Ok(()),
            None => Err(EtcdError::TimeoutLeaderTransfer),
        }
    }

    fn check_addition(&self, is_learner: bool) -> Result<(), EtcdError> {
        if !self.process.config.cluster.strict_reconfig {
            return Ok(());
        }
        let membership = self.cluster.membership();
        if !is_learner && !has_quorum_started(&membership, Change::Add) {
            return Err(EtcdError::MemberNotEnoughStarted);
        }
        let voters: Vec<u64> = voters(&membership).map(|member| member.id).collect();
        let count = voters.len();
        let connected = self.peers.active_for(voters, HEALTHY_AFTER);
        if !has_quorum_after_addition(count, connected) {
            return Err(EtcdError::Unhealthy);
        }
        Ok(())
    }

    fn check_removal(&self, id: u64) -> Result<(), EtcdError> {
        let membership = self.cluster.membership();
        let Some(member) = membership.get(id) else {
            return Err(EtcdError::MemberNotFound);
        };
        if !self.process.config.cluster.strict_reconfig || member.is_learner {
            return Ok(());
        }
        if !has_quorum_started(&membership, Change::Remove(id)) {
            return Err(EtcdError::MemberNotEnoughStarted);
        }
        // A member that is down is not part of the remaining quorum.
        if id != self.cluster.own_id().0 && self.peers.active_since(id).is_none() {
            return Ok(());
        }
        let voters: Vec<u64> = voters(&membership).map(|member| member.id).collect();
        let count = voters.len();
        let active = self.peers.active_for(voters, HEALTHY_AFTER);
        if active.saturating_sub(1) < 1 + (count - 1) / 2 {
            return Err(EtcdError::Unhealthy);
        }
        Ok(())
    }

    fn check_promotion(&self, id: u64) -> Result<(), EtcdError> {
        let membership = self.cluster.membership();
        match membership.get(id) {
            None => return Err(EtcdError::MemberNotFound),
            Some(member) if !member.is_learner => return Err(EtcdError::MemberNotLearner),
            Some(_) => {}
        }
        let leader_has = self.consensus.status().last_index;
        let learner_has = self.consensus.matched(id).unwrap_or(0);
        if learner_has.saturating_mul(100) < leader_has.saturating_mul(READY_PERCENT) {
            return Err(EtcdError::LearnerNotReady);
        }
        if self.process.config.cluster.strict_reconfig
            && !has_quorum_started(&membership, Change::Add)
        {
            return Err(EtcdError::MemberNotEnoughStarted);
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Change {
    Add,
    Remove(u64),
}

fn voters(membership: &Membership) -> impl Iterator<Item = &MemberRecord> {
    membership.iter().filter(|member| !member.is_learner)
}

/// Whether the voters that have started are a quorum after the change. A member has started once
/// it has published its name.
fn has_quorum_started(membership: &Membership, change: Change) -> bool {
    let stays = |member: &&MemberRecord| match change {
        Change::Add => true,
        Change::Remove(id) => member.id != id,
    };
    let (mut members, mut started) = (0, 0);
    for member in voters(membership).filter(stays) {
        members += 1;
        started += usize::from(!member.name.is_empty());
    }
    if matches!(change, Change::Add) {
        members += 1;
        // A cluster of one has no other way to grow.
        if started == 1 && members == 2 {
            return true;
        }
    }
    started > members / 2
}

/// Whether the connected voters, this member included, are a quorum before an added member
/// connects. A cluster of one has no other way to grow.
fn has_quorum_after_addition(voters: usize, connected: usize) -> bool {
    voters == 1 || connected > voters.div_ceil(2)
}

// Numbers and strings always serialize; without its context a change would add a member that
// cannot be reached.
#[allow(clippy::expect_used)]
fn json(value: &impl Serialize) -> Bytes {
    // Numbers and strings always serialize.
    let json = serde_json::to_vec(value).expect("the context of a membership change serializes");
    json.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in etcd 3.7: more than half of the voters and the new member.
    #[test]
    fn member_may_be_added_while_connected_voters_stay_a_quorum() {
        let fewest = |voters: usize| {
            let enough = |connected: &usize| has_quorum_after_addition(voters, *connected);
            (1..=voters).find(enough)
        };
        let expected = [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 4), (7, 5)];
        for (voters, connected) in expected {
            assert_eq!(fewest(voters), Some(connected), "of {voters}");
        }
        assert!(has_quorum_after_addition(1, 0), "a cluster of one");
    }
}
