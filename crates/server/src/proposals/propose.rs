//! Proposes checked requests and waits for their answers from apply.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use portunus_auth::{Caller, ROOT};
use portunus_consensus::{Proposal, ProposeError};
use portunus_gates::cluster::MemberId;
use portunus_mvcc::rules::quota;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmType, InternalRaftRequest, RequestHeader, alarm_request::AlarmAction,
};
use portunus_proto::raftpb::{ConfChange, ConfChangeType};
use portunus_proto::{EtcdError, Term};
use prost::Message;

use super::Proposals;
use crate::coarse_timeout::coarse_timeout;
use crate::metrics::Operation;
use portunus_features::{LogCompression, PriorityRequest};
use portunus_gates::Feature;
use portunus_statemachine::Response;
use portunus_statemachine::membership::Membership;
use portunus_statemachine::wrap::{self, Wrapping};

/// Committed entries that may wait to be applied before new requests are refused.
pub const APPLY_BACKLOG_MAX: u64 = 5000;

impl Proposals {
    /// Proposes a request and waits until this member has applied it.
    pub async fn propose(&self, request: InternalRaftRequest) -> Result<Response, EtcdError> {
        let anonymous = Caller::default();
        self.propose_requiring(request, &[], &anonymous).await
    }

    /// Proposes a request of a caller; without effect where the caller may not make it, or where a
    /// required cluster feature is off.
    pub async fn propose_requiring(
        &self,
        request: InternalRaftRequest,
        required: &[String],
        caller: &Caller,
    ) -> Result<Response, EtcdError> {
        let operation = Operation::of(&request);
        let started = Instant::now();
        let proposed = self.propose_unmeasured(request, required, caller, started);
        let result = proposed.await;
        let metrics = &self.process.metrics.operations;
        metrics.answered(operation, result.is_ok(), started.elapsed());
        result
    }

    async fn propose_unmeasured(
        &self,
        request: InternalRaftRequest,
        required: &[String],
        caller: &Caller,
        started: Instant,
    ) -> Result<Response, EtcdError> {
        let status = self.consensus.status();
        let backlog_max = match &request.lease_revoke {
            // Under overload, requests that free resources have a higher limit.
            Some(_) if self.process.gates.enabled(PriorityRequest) => 2 * APPLY_BACKLOG_MAX,
            _ => APPLY_BACKLOG_MAX,
        };
        if status.commit.saturating_sub(self.store.applied.index().0) > backlog_max {
            return Err(EtcdError::TooManyRequests);
        }
        let id = self.request_ids.next();
        if request.encoded_len() > self.process.config.max_request_bytes {
            return Err(EtcdError::RequestTooLarge);
        }
        // The cluster feature is on, and the min compatibility version can read packed entries.
        let packs = self.cluster.gates.newest().enabled(LogCompression)
            && LogCompression::DECLARATION.is_written_by(&self.process.config.version);
        let all_read = (packs || !required.is_empty()) && self.cluster.membership().all_propose();
        if !required.is_empty() && !all_read {
            return Err(EtcdError::RequiredFeatureUncertain);
        }
        let pack = packs && all_read;
        let header = RequestHeader {
            id,
            username: caller.username().to_owned(),
            auth_revision: caller.revision(),
        };
        let data = wrap::encode(header, request, Wrapping { pack, required });
        let proposal = Proposal::normal(data);
        let waiting = self.waiters.register(id, proposal.progress());
        self.process.metrics.proposals_pending.inc();
        let result = match self.consensus.submit(proposal) {
            Ok(ticket) => {
                let timeout = self.process.request_timeout();
                match coarse_timeout(timeout, waiting.answer()).await {
                    Some(answer) => {
                        ticket.detach();
                        answer
                    }
                    // Dropping the ticket withdraws a proposal that no leader has taken.
                    None => Err(self.why_late(started)),
                }
            }
            Err(ProposeError::Stopped) => Err(EtcdError::Stopped),
            Err(_) => Err(EtcdError::TooManyRequests),
        };
        if result.as_ref().is_err_and(is_lost) {
            self.process.metrics.proposals_failed.inc();
        }
        self.process.metrics.proposals_pending.dec();
        result
    }

    /// Proposes a change of membership and waits until this member has applied it.
    pub async fn propose_conf_change(
        &self,
        kind: ConfChangeType,
        node_id: u64,
        context: Bytes,
    ) -> Result<Arc<Membership>, EtcdError> {
        let id = self.request_ids.next();
        let proposal = Proposal::conf_change(ConfChange {
            id,
            r#type: kind.into(),
            node_id,
            context,
        });
        let waiting = self.waiters.register(id, proposal.progress());
        // Kept until the end: dropping it withdraws a change that no leader has taken.
        let _ticket = match self.consensus.submit(proposal) {
            Ok(ticket) => ticket,
            Err(ProposeError::Stopped) => return Err(EtcdError::Stopped),
            Err(_) => return Err(EtcdError::TooManyRequests),
        };
        let started = Instant::now();
        match coarse_timeout(self.process.request_timeout(), waiting.answer()).await {
            Some(answer) => answer.map(|_| self.cluster.membership_full()),
            None => Err(self.why_late(started)),
        }
    }

    /// Proposes a request without waiting for its answer. Without a leader, or if the queue is
    /// full, it is lost; callers are loops that try again.
    pub fn propose_and_forget(&self, request: InternalRaftRequest) {
        if self.consensus.status().leader != MemberId::NONE {
            self.submit_and_forget(Proposal::normal(self.encode_own(request)));
        }
    }

    /// Proposes a request that only the leader of `term` may decide, without waiting for its
    /// answer. It is not proposed once this member does not lead that term.
    pub fn propose_as_leader(&self, term: Term, request: InternalRaftRequest) {
        let data = self.encode_own(request);
        self.submit_and_forget(Proposal::normal(data).only_as_leader_of(term));
    }

    /// Encodes a request of this member. It revokes expired leases as `root`, whoever may write
    /// their keys.
    fn encode_own(&self, mut request: InternalRaftRequest) -> Bytes {
        let username = match request.lease_revoke {
            Some(_) => ROOT.to_owned(),
            None => String::new(),
        };
        request.header = Some(RequestHeader {
            id: self.request_ids.next(),
            username,
            ..RequestHeader::default()
        });
        request.encode_to_vec().into()
    }

    fn submit_and_forget(&self, proposal: Proposal) {
        match self.consensus.submit(proposal) {
            Ok(ticket) => ticket.detach(),
            Err(error) => {
                tracing::warn!(%error, "a proposal of this member's own was not accepted; it will be made again");
            }
        }
    }

    /// Refuses a write that would exceed the quota, and raises the alarm.
    pub fn check_quota(&self, cost_bytes: u64) -> Result<(), EtcdError> {
        let total_bytes = self.store.reader().sizes().total_bytes;
        if cost_bytes == 0 || quota::fits(total_bytes, cost_bytes, self.process.config.quota_bytes)
        {
            return Ok(());
        }
        self.raise_no_space_alarm();
        Err(EtcdError::NoSpace)
    }

    /// Proposes the alarm about the quota of this member unless it is raised already.
    pub fn raise_no_space_alarm(&self) {
        let (own_id, alarm) = (self.cluster.own_id().0, AlarmType::Nospace);
        if self.cluster.alarms().is_raised(own_id, alarm) {
            return;
        }
        tracing::warn!(
            quota_bytes = self.process.config.quota_bytes,
            "the backend exceeds its quota: writes are refused until space is freed (compact, defragment) and the alarm is disarmed"
        );
        self.activate_alarm(own_id, alarm);
    }

    /// Proposes to raise an alarm of a member.
    pub fn activate_alarm(&self, member_id: u64, alarm: AlarmType) {
        self.propose_and_forget(InternalRaftRequest {
            alarm: Some(AlarmRequest {
                action: AlarmAction::Activate as i32,
                member_id,
                alarm: alarm as i32,
            }),
            ..InternalRaftRequest::default()
        });
    }
}

/// Whether the error leaves the outcome of the request unknown.
fn is_lost(error: &EtcdError) -> bool {
    matches!(
        error,
        EtcdError::Timeout
            | EtcdError::TimeoutDueToLeaderFail
            | EtcdError::TimeoutDueToConnectionLost
    )
}
