//! The lessor, shared between the state machine and the services that renew leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portunus_mvcc::Store;
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::lease::{Lessor, LessorConfig, RecordError, decode_record};

/// The seconds between two checkpoints of a lease, as in etcd.
const CHECKPOINT_INTERVAL_S: u32 = 300;

/// The lessor behind its lock. The state machine locks it to look up, grant, revoke or
/// checkpoint a lease; services lock it to renew a lease or to read its remaining life.
#[derive(Clone)]
pub struct SharedLessor(Arc<Mutex<Lessor>>);

impl SharedLessor {
    /// Shares a lessor.
    pub fn new(lessor: Lessor) -> SharedLessor {
        SharedLessor(Arc::new(Mutex::new(lessor)))
    }

    /// Locks the lessor, for one operation.
    pub fn lock(&self) -> MutexGuard<'_, Lessor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the leases of a store, with their clocks stopped.
///
/// # Errors
/// If a stored lease cannot be decoded.
pub(crate) fn lessor_of(store: &Store, lease_ttl_s_min: i64) -> Result<Lessor, RecordError> {
    let mut lessor = Lessor::new(LessorConfig {
        min_ttl_s: lease_ttl_s_min,
        checkpoint_interval_s: Some(CHECKPOINT_INTERVAL_S),
        ..LessorConfig::default()
    });
    let records = store
        .iter_raw(Bucket::Lease)
        .map(|(_, value)| decode_record(value));
    lessor.recover(records.collect::<Result<Vec<_>, _>>()?);
    Ok(lessor)
}
