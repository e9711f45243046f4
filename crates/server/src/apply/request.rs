//! One request: corrupt guard, space guard, quota, then the change. The order is etcd's,
//! because members must agree on the error as well.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use portunus_gates::MajorMinor;
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::lease::{encode_record, record_key};
use portunus_mvcc::rules::quota;
use portunus_mvcc::{ApplyError, RangeResults, RevisionEvents};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, AlarmType, CompactionRequest, InternalRaftRequest,
    LeaseCheckpointRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, PutRequest, ResponseHeader, TxnRequest,
};
use tokio::sync::oneshot;

use super::clean_up::clean_up;
use super::entry::Outcome;
use super::{Applier, ApplyFaultError, Response};
use crate::member::cluster_gates::{digest, from_message};
use crate::member::decision_cause::version_change;
use crate::member::membership::{DowngradeRecord, MemberRecord, ParamsDecision};
use crate::metrics::Operation;

/// Whether a member that had published no proposal has one now.
fn begins_to_propose(before: Option<&MemberRecord>, now: Option<&MemberRecord>) -> bool {
    let had_none = before.is_some_and(|it| !it.name.is_empty() && it.proposal.is_none());
    had_none && now.is_some_and(|it| it.proposal.is_some())
}

/// Bytes a lease is reckoned to take.
pub const LEASE_COST_BYTES: u64 = 64;

/// The first cluster version that stores the remaining life of leases.
const CHECKPOINTS_PERSISTED_SINCE: MajorMinor = MajorMinor::literal("3.6");

type Applied = Result<(Response, Option<Arc<RevisionEvents>>), ApplyError>;

impl Applier {
    pub(super) fn apply_request(
        &mut self,
        index: u64,
        request_id: u64,
        request: InternalRaftRequest,
    ) -> Result<Outcome, ApplyFaultError> {
        let started = Instant::now();
        let operation = Operation::of(&request);
        let outcome = self.apply_known_request(index, request_id, request)?;
        let is_success = outcome.answer.is_ok();
        let metrics = &self.member.metrics;
        metrics
            .operations
            .applied(operation, is_success, started.elapsed());
        Ok(outcome)
    }

    fn apply_known_request(
        &mut self,
        index: u64,
        request_id: u64,
        request: InternalRaftRequest,
    ) -> Result<Outcome, ApplyFaultError> {
        // These come before every guard.
        if let Some(result) = self.apply_cluster_request(index, &request)? {
            return Ok(Outcome {
                request_id,
                answer: Ok(result),
                events: None,
            });
        }
        self.note_gated(index);
        #[cfg(feature = "test-features")]
        let request = self.tagged(index, request)?;
        let is_corrupt = self.alarms.is_raised_by_any(AlarmType::Corrupt);
        let applied = if let Some(put) = &request.put {
            self.guarded(is_corrupt, |applier| applier.apply_put(put))
        } else if let Some(delete) = &request.delete_range {
            self.guarded(is_corrupt, |applier| {
                let applied = applier.store.delete_range(delete)?;
                applier.member.metrics.deletes.inc();
                Ok((Response::DeleteRange(applied.response), applied.events))
            })
        } else if let Some(txn) = &request.txn {
            self.guarded(is_corrupt, |applier| applier.apply_txn(request_id, txn))
        } else if let Some(compaction) = &request.compaction {
            self.guarded(is_corrupt, |applier| applier.apply_compaction(compaction))
        } else if let Some(grant) = &request.lease_grant {
            self.guarded(is_corrupt, |applier| applier.apply_lease_grant(grant))
        } else if let Some(revoke) = &request.lease_revoke {
            self.guarded(is_corrupt, |applier| applier.apply_lease_revoke(revoke))
        } else if let Some(checkpoint) = &request.lease_checkpoint {
            self.apply_lease_checkpoint(checkpoint)
        } else if let Some(alarm) = &request.alarm {
            self.apply_alarm(alarm)
        } else if request.range.is_some() {
            // Only its proposer would answer it, and nobody proposes ranges here.
            Ok((Response::Done, None))
        } else {
            return Err(ApplyFaultError::Unsupported {
                index,
                what: "authentication, or something newer",
            });
        };
        match applied {
            Ok((response, events)) => Ok(Outcome {
                request_id,
                answer: Ok(response),
                events,
            }),
            Err(error) => match error.refusal() {
                Some(refusal) => Ok(Outcome {
                    request_id,
                    answer: Err(refusal),
                    events: None,
                }),
                None => Err(ApplyFaultError::Store {
                    index,
                    source: error,
                }),
            },
        }
        .map(|outcome| self.with_quota_answer(&request, outcome))
    }

    fn guarded(&mut self, is_corrupt: bool, run: impl FnOnce(&mut Self) -> Applied) -> Applied {
        if is_corrupt {
            return Err(EtcdError::Corrupt.into());
        }
        run(self)
    }

    /// Refuses what takes space while the alarm is on.
    fn refuse_without_space(&self, cost_bytes: u64) -> Result<(), ApplyError> {
        if cost_bytes > 0 && self.alarms.is_raised_by_any(AlarmType::Nospace) {
            return Err(EtcdError::NoSpace.into());
        }
        Ok(())
    }

    /// A write that went over the quota is applied all the same, on every member, and
    /// then answered with an error; the alarm stops the next one.
    fn with_quota_answer(&mut self, request: &InternalRaftRequest, outcome: Outcome) -> Outcome {
        let cost_bytes = match request {
            InternalRaftRequest { put: Some(put), .. } => quota::put_cost_bytes(put),
            InternalRaftRequest { txn: Some(txn), .. } => quota::txn_cost_bytes(txn),
            InternalRaftRequest {
                lease_grant: Some(_),
                ..
            } => LEASE_COST_BYTES,
            _ => return outcome,
        };
        let total_bytes = self.store.sizes().total_bytes;
        if cost_bytes == 0
            || outcome.answer.is_err()
            || quota::fits(total_bytes, cost_bytes, self.member.config.quota_bytes)
        {
            return outcome;
        }
        self.member.raise_no_space_alarm();
        Outcome {
            answer: Err(EtcdError::NoSpace),
            ..outcome
        }
    }

    fn apply_put(&mut self, put: &PutRequest) -> Applied {
        self.refuse_without_space(quota::put_cost_bytes(put))?;
        let leases = &self.member.leases;
        let exists = |lease: i64| leases.lock().exists(lease);
        let applied = self.store.put(put, &exists)?;
        self.member.metrics.puts.inc();
        Ok((Response::Put(applied.response), applied.events))
    }

    fn apply_txn(&mut self, request_id: u64, txn: &TxnRequest) -> Applied {
        self.refuse_without_space(quota::txn_cost_bytes(txn))?;
        let ranges = if self.member.waiters.is_waiting(request_id) {
            RangeResults::Wanted
        } else {
            RangeResults::Unwanted
        };
        let leases = &self.member.leases;
        let exists = |lease: i64| leases.lock().exists(lease);
        let applied = self.store.txn(txn, &exists, ranges)?;
        self.member.metrics.txns.inc();
        Ok((Response::Txn(applied.response), applied.events))
    }

    fn apply_compaction(&mut self, compaction: &CompactionRequest) -> Applied {
        let response = self.store.compact(compaction)?;
        let is_another_unfinished = std::mem::replace(&mut self.is_compacting, true);
        if !is_another_unfinished {
            self.compaction_began = Instant::now();
        }
        self.member.metrics.compaction.pending.set(1);
        let done = compaction.physical.then(|| {
            let (sender, receiver) = oneshot::channel();
            self.compactions.push((compaction.revision, sender));
            receiver
        });
        tracing::info!(revision = compaction.revision, "compaction begins");
        Ok((Response::Compaction(response, done), None))
    }

    fn apply_lease_grant(&mut self, grant: &LeaseGrantRequest) -> Applied {
        self.refuse_without_space(LEASE_COST_BYTES)?;
        let leases = &self.member.leases;
        let now_ms = leases.now_ms();
        let record = leases.lock().grant(grant.id, grant.ttl, now_ms)?;
        let key = Bytes::copy_from_slice(&record_key(record.id));
        self.store
            .put_raw(Bucket::Lease, key, Bytes::from(encode_record(&record)))?;
        self.member.metrics.leases_granted.inc();
        let metrics = &self.member.metrics;
        metrics.lease_ttl_seconds.observe(record.ttl as f64);
        let response = LeaseGrantResponse {
            header: Some(self.revision_header()),
            id: record.id,
            ttl: record.ttl,
            error: String::new(),
        };
        Ok((Response::LeaseGrant(response), None))
    }

    fn apply_lease_revoke(&mut self, revoke: &LeaseRevokeRequest) -> Applied {
        self.member.leases.lock().revoke(revoke.id)?;
        let events = self.store.revoke_lease(revoke.id)?;
        self.member.metrics.leases_revoked.inc();
        let response = LeaseRevokeResponse {
            header: Some(self.revision_header()),
        };
        Ok((Response::LeaseRevoke(response), events))
    }

    fn apply_lease_checkpoint(&mut self, request: &LeaseCheckpointRequest) -> Applied {
        let now_ms = self.member.leases.now_ms();
        // As etcd: from 3.6 on the remaining life is stored with the lease.
        let persist = self
            .membership
            .cluster_version
            .is_some_and(|version| version >= CHECKPOINTS_PERSISTED_SINCE);
        for checkpoint in &request.checkpoints {
            let record = self.member.leases.lock().checkpoint(
                checkpoint.id,
                checkpoint.remaining_ttl,
                now_ms,
                persist,
            );
            if let Some(record) = record {
                let key = Bytes::copy_from_slice(&record_key(record.id));
                self.store
                    .put_raw(Bucket::Lease, key, Bytes::from(encode_record(&record)))?;
            }
        }
        Ok((Response::Done, None))
    }

    fn apply_alarm(&mut self, request: &AlarmRequest) -> Applied {
        let alarms = self.alarms.apply(&mut self.store, request)?;
        self.member.alarms.store(Arc::new(self.alarms.clone()));
        let response = AlarmResponse {
            header: Some(self.revision_header()),
            alarms,
        };
        Ok((Response::Alarm(response), None))
    }

    /// Why a decision was made: what the leader wrote, or the version change itself for an
    /// entry without params.
    fn cause_of(
        &self,
        set: &portunus_proto::membershippb::ClusterVersionSetRequest,
        version: MajorMinor,
    ) -> String {
        if set.cluster_params.is_some() {
            return set.cause.clone();
        }
        version_change(self.membership.cluster_version, version).unwrap_or_default()
    }

    /// Requests about the cluster itself.
    fn apply_cluster_request(
        &mut self,
        index: u64,
        request: &InternalRaftRequest,
    ) -> Result<Option<Response>, ApplyFaultError> {
        let fault = |source| ApplyFaultError::Membership { index, source };
        if let Some(set) = &request.cluster_version_set {
            let own = self.member.config.version.emulation();
            let Ok(version) = set.ver.parse::<MajorMinor>() else {
                return Err(ApplyFaultError::Unsupported {
                    index,
                    what: "a cluster version that is no version",
                });
            };
            if version > own {
                return Err(ApplyFaultError::ClusterVersionTooHigh {
                    cluster: set.ver.clone(),
                    own: own.to_string(),
                });
            }
            if set.cluster_params.is_some() && self.membership.is_stale_version(version) {
                // Decided by a leader that had lost its place before it was in the log.
                tracing::warn!(cluster_version = %version, index, "an outdated decision was not taken");
                return Ok(Some(Response::Done));
            }
            let params = set.cluster_params.as_ref().and_then(from_message);
            let specs = self.member.cluster_gates.specs();
            match specs.applied(version, params, self.membership.params.as_ref()) {
                Ok(applied) => {
                    let decision = ParamsDecision {
                        index,
                        cluster_version: version.to_string(),
                        params: None,
                        decided_unix_seconds: set.decided_unix_seconds,
                        decided_by: set.decided_by,
                        cause: self.cause_of(set, version),
                    };
                    let is_lower = self.membership.cluster_version > Some(version);
                    self.membership
                        .set_cluster_version(&mut self.store, version)
                        .and_then(|()| {
                            self.membership
                                .set_params(&mut self.store, applied, decision)
                        })
                        .map_err(fault)?;
                    if is_lower {
                        tracing::info!(cluster_version = %version, "the server is ready to downgrade");
                        let cleaned = clean_up(&mut self.store, version)
                            .map_err(|source| ApplyFaultError::Store { index, source })?;
                        if !cleaned.is_empty() {
                            tracing::info!(features = cleaned.join(","), cluster_version = %version, "what these features kept is removed");
                        }
                        // A member of the lower version may start from this log.
                        self.forget_log_to(index);
                    }
                    tracing::info!(cluster_version = %version, "cluster version decided");
                }
                // The same entry has no effect on any member.
                Err(error) => {
                    tracing::error!(%error, cluster_version = %version, index, "cluster version refused");
                }
            }
        } else if let Some(set) = &request.cluster_member_attr_set {
            if let Some(attributes) = &set.member_attributes {
                let before = self.membership.clone();
                let record = self
                    .membership
                    .set_attributes(&mut self.store, set.member_id, attributes)
                    .map_err(fault)?;
                let own = self.member.config.version.emulation();
                let gates = &self.member.cluster_gates;
                self.member.peers.strangers().started_anew(set.member_id);
                if begins_to_propose(before.get(set.member_id), record) {
                    gates.republish_proposal();
                }
                match record.map(|record| (record.id, gates.check_member(&before, record, own))) {
                    // Founders compare their versions before they publish them, so in a new
                    // cluster this was published before a restart with another version.
                    // Later it is that of a member that was left behind, perhaps published
                    // long ago. Neither is a reason for others to stop.
                    Some((id, Err(source)))
                        if !source.new_cluster && id == self.member.identity.member_id =>
                    {
                        return Err(ApplyFaultError::MixedVersions { index, source });
                    }
                    Some((_, Err(error))) if error.new_cluster => {
                        tracing::debug!(%error, index, "member of a new cluster had another version");
                    }
                    Some((_, Err(error))) => {
                        tracing::warn!(%error, index, "member version is incompatible with the cluster version")
                    }
                    Some((_, Ok(()))) | None => {}
                }
                tracing::debug!(
                    index,
                    member = %format_args!("{:x}", set.member_id),
                    "a member's word is applied"
                );
            }
        } else if let Some(set) = &request.downgrade_info_set {
            let downgrade = DowngradeRecord {
                target_version: set.ver.clone(),
                enabled: set.enabled,
            };
            self.membership
                .set_downgrade(&mut self.store, downgrade)
                .map_err(fault)?;
        } else {
            return Ok(None);
        }
        self.show_membership();
        self.bind_params(index);
        // What was just applied may call for another decision.
        self.member.versions_changed.notify_one();
        Ok(Some(Response::Done))
    }

    /// Makes the decided values hold for every entry after this one.
    pub(super) fn bind_params(&mut self, index: u64) {
        if self.membership.params_since() != Some(index) {
            return;
        }
        self.take_view();
        let params = self.membership.params.as_ref();
        let on = params.map(|params| params.features.iter().filter(|(_, enabled)| **enabled));
        let on: Vec<&str> = on
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        // Members can be compared by index and digest.
        tracing::info!(
            index,
            digest = %format_args!("{:08x}", digest(params)),
            version = params.map(|params| params.version.to_string()),
            on = on.join(","),
            "cluster features decided"
        );
    }

    /// Lets everybody see the members and features as they are now.
    pub(super) fn show_membership(&mut self) {
        self.review_gated();
        // Before anything is sent because of it.
        self.member.peers.strangers().review(&self.membership);
        self.member
            .membership
            .store(Arc::new(self.membership.clone()));
    }

    /// Reads the values for the entries that follow, and shows them to everybody else.
    pub(super) fn take_view(&mut self) {
        let gates = &self.member.cluster_gates;
        self.view = gates.view(self.membership.params.as_ref());
        gates.publish_view(Arc::clone(&self.view), self.membership.params_since());
    }

    fn revision_header(&self) -> ResponseHeader {
        ResponseHeader {
            revision: self.store.revision(),
            ..ResponseHeader::default()
        }
    }
}
