//! Requests about leases.

use bytes::Bytes;
use portunus_auth::Caller;
use portunus_gates::MajorMinor;
use portunus_mvcc::ApplyError;
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::lease::{encode_record, record_key};
use portunus_proto::etcdserverpb::{
    LeaseCheckpointRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest,
    LeaseRevokeResponse,
};
use portunus_proto::{LeaseId, leasepb};

use super::StateMachine;
use super::data::Changed;
use crate::effect::Response;

/// The bytes that a lease is reckoned to take.
pub const LEASE_COST_BYTES: u64 = 64;

/// The first cluster version that stores the remaining life of leases, as in etcd.
const CHECKPOINTS_PERSISTED_SINCE: MajorMinor = MajorMinor::literal("3.6");

impl StateMachine {
    pub(super) fn apply_lease_grant(
        &mut self,
        grant: &LeaseGrantRequest,
        now_ms: u64,
    ) -> Result<Changed, ApplyError> {
        self.refuse_without_space(LEASE_COST_BYTES)?;
        let id = LeaseId(grant.id);
        let record = self.lessor.lock().grant(id, grant.ttl, now_ms)?;
        self.put_lease(&record)?;
        let response = LeaseGrantResponse {
            header: Some(self.revision_header()),
            id: record.id,
            ttl: record.ttl,
            error: String::new(),
        };
        Ok(Changed::without_events(Response::LeaseGrant(response)))
    }

    pub(super) fn apply_lease_revoke(
        &mut self,
        caller: &Caller,
        revoke: &LeaseRevokeRequest,
    ) -> Result<Changed, ApplyError> {
        let id = LeaseId(revoke.id);
        self.auth
            .check_lease_writable(caller, id, &|lease| self.leased_keys(lease))?;
        self.lessor.lock().revoke(id)?;
        let events = self.store.revoke_lease(id)?;
        let response = LeaseRevokeResponse {
            header: Some(self.revision_header()),
        };
        Ok(Changed {
            response: Response::LeaseRevoke(response),
            events,
            effect: None,
        })
    }

    pub(super) fn apply_lease_checkpoint(
        &mut self,
        request: &LeaseCheckpointRequest,
        now_ms: u64,
    ) -> Result<Changed, ApplyError> {
        let cluster_version = self.membership.cluster_version;
        let persist = cluster_version.is_some_and(|it| it >= CHECKPOINTS_PERSISTED_SINCE);
        for checkpoint in &request.checkpoints {
            let (id, remaining_ttl) = (LeaseId(checkpoint.id), checkpoint.remaining_ttl);
            let mut lessor = self.lessor.lock();
            let record = lessor.checkpoint(id, remaining_ttl, now_ms, persist);
            drop(lessor);
            if let Some(record) = record {
                self.put_lease(&record)?;
            }
        }
        Ok(Changed::without_events(Response::Done))
    }

    fn put_lease(&mut self, record: &leasepb::Lease) -> Result<(), ApplyError> {
        let key = Bytes::copy_from_slice(&record_key(LeaseId(record.id)));
        let value = Bytes::from(encode_record(record));
        self.store.put_raw(Bucket::Lease, key, value)
    }
}
