//! Requests about keys, leases and alarms: corruption guard, space guard, permission, change, quota. The
//! order is etcd's, because members have to agree on the error as well.

use std::sync::Arc;

use portunus_auth::Caller;
use portunus_mvcc::rules::quota;
use portunus_mvcc::{ApplyError, RangeResults, RevisionEvents};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, AlarmType, CompactionRequest, DeleteRangeRequest, PutRequest,
    TxnRequest,
};

use super::{LEASE_COST_BYTES, Local, Origin, StateMachine};
use crate::command::DataCommand;
use crate::effect::{Applied, Effect, Response};
use crate::entry_error::EntryError;

/// The response, the events for watchers, and an effect.
pub(super) struct Changed {
    pub(super) response: Response,
    pub(super) events: Option<Arc<RevisionEvents>>,
    pub(super) effect: Option<Effect>,
}

impl Changed {
    pub(super) fn without_events(response: Response) -> Changed {
        Changed {
            response,
            events: None,
            effect: None,
        }
    }
}

impl StateMachine {
    /// Applies a request that is not about the cluster itself.
    pub(super) fn apply_data(
        &mut self,
        index: u64,
        origin: &Origin,
        command: DataCommand,
        local: &Local<'_>,
    ) -> Result<Applied, EntryError> {
        #[cfg(feature = "test-features")]
        let command = self.tagged(index, command)?;
        let cost_bytes = cost_bytes(&command);
        let applied = match self.change(origin, command, local) {
            Ok(changed) => Applied {
                answer: Ok(changed.response),
                events: changed.events,
                effects: changed.effect.into_iter().collect(),
                ..Applied::without_request()
            },
            Err(error) => match error.refusal() {
                Some(refusal) => Applied {
                    answer: Err(refusal),
                    ..Applied::without_request()
                },
                None => {
                    return Err(EntryError::Store {
                        index,
                        source: error,
                    });
                }
            },
        };
        Ok(self.with_quota_checked(cost_bytes, applied))
    }

    fn change(
        &mut self,
        origin: &Origin,
        command: DataCommand,
        local: &Local<'_>,
    ) -> Result<Changed, ApplyError> {
        let is_corrupt = self.alarms.is_raised_by_any(AlarmType::Corrupt);
        match command {
            DataCommand::Alarm(alarm) => self.apply_alarm(&alarm),
            DataCommand::LeaseCheckpoint(request) => {
                self.apply_lease_checkpoint(&request, local.now_ms)
            }
            DataCommand::Range => Ok(Changed::without_events(Response::Done)),
            _ if is_corrupt => Err(EtcdError::Corrupt.into()),
            DataCommand::Put(put) => self.apply_put(&origin.caller, &put),
            DataCommand::DeleteRange(delete) => self.apply_delete_range(&origin.caller, &delete),
            DataCommand::Txn(txn) => {
                let ranges = match (local.is_waiting)(origin.request_id) {
                    true => RangeResults::Wanted,
                    false => RangeResults::Unwanted,
                };
                self.apply_txn(&origin.caller, &txn, ranges)
            }
            DataCommand::Compaction(compaction) => self.apply_compaction(&compaction),
            DataCommand::LeaseGrant(grant) => self.apply_lease_grant(&grant, local.now_ms),
            DataCommand::LeaseRevoke(revoke) => self.apply_lease_revoke(&origin.caller, &revoke),
        }
    }

    /// Refuses a request that takes space while the NOSPACE alarm is raised.
    pub(super) fn refuse_without_space(&self, cost_bytes: u64) -> Result<(), ApplyError> {
        if cost_bytes > 0 && self.alarms.is_raised_by_any(AlarmType::Nospace) {
            return Err(EtcdError::NoSpace.into());
        }
        Ok(())
    }

    /// A write that exceeds the quota is made all the same, on every member, and then answered
    /// with an error; the alarm refuses the next one.
    fn with_quota_checked(&self, cost_bytes: u64, mut applied: Applied) -> Applied {
        let quota_bytes = self.settings.quota_bytes;
        let fits = || quota::fits(self.store.sizes().total_bytes, cost_bytes, quota_bytes);
        if cost_bytes > 0 && applied.answer.is_ok() && !fits() {
            applied.answer = Err(EtcdError::NoSpace);
            applied.effects.push(Effect::QuotaExceeded);
        }
        applied
    }

    fn apply_put(&mut self, caller: &Caller, put: &PutRequest) -> Result<Changed, ApplyError> {
        self.refuse_without_space(quota::put_cost_bytes(put))?;
        self.auth
            .check_put(caller, put, &|lease| self.leased_keys(lease))?;
        let lessor = &self.lessor;
        let applied = self.store.put(put, &|lease| lessor.lock().exists(lease))?;
        Ok(Changed {
            response: Response::Put(applied.response),
            events: applied.events,
            effect: None,
        })
    }

    fn apply_delete_range(
        &mut self,
        caller: &Caller,
        delete: &DeleteRangeRequest,
    ) -> Result<Changed, ApplyError> {
        self.auth.check_delete_range(caller, delete)?;
        let applied = self.store.delete_range(delete)?;
        Ok(Changed {
            response: Response::DeleteRange(applied.response),
            events: applied.events,
            effect: None,
        })
    }

    fn apply_txn(
        &mut self,
        caller: &Caller,
        txn: &TxnRequest,
        ranges: RangeResults,
    ) -> Result<Changed, ApplyError> {
        self.refuse_without_space(quota::txn_cost_bytes(txn))?;
        self.auth
            .check_txn(caller, txn, &|lease| self.leased_keys(lease))?;
        let lessor = &self.lessor;
        let exists = |lease| lessor.lock().exists(lease);
        let applied = self.store.txn(txn, &exists, ranges)?;
        Ok(Changed {
            response: Response::Txn(applied.response),
            events: applied.events,
            effect: None,
        })
    }

    fn apply_compaction(&mut self, compaction: &CompactionRequest) -> Result<Changed, ApplyError> {
        let response = self.store.compact(compaction)?;
        Ok(Changed {
            response: Response::Compaction(response),
            events: None,
            effect: Some(Effect::CompactionBegan {
                revision: compaction.revision,
                is_physical: compaction.physical,
            }),
        })
    }

    fn apply_alarm(&mut self, request: &AlarmRequest) -> Result<Changed, ApplyError> {
        let alarms = self.alarms.apply(&mut self.store, request)?;
        let response = AlarmResponse {
            header: Some(self.revision_header()),
            alarms,
        };
        Ok(Changed {
            response: Response::Alarm(response),
            events: None,
            effect: Some(Effect::AlarmsChanged),
        })
    }
}

/// The bytes that a request is reckoned to add to the backend.
fn cost_bytes(command: &DataCommand) -> u64 {
    match command {
        DataCommand::Put(put) => quota::put_cost_bytes(put),
        DataCommand::Txn(txn) => quota::txn_cost_bytes(txn),
        DataCommand::LeaseGrant(_) => LEASE_COST_BYTES,
        _ => 0,
    }
}
