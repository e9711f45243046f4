//! Limits the snapshots of the store that are sent to clients at once.
//!
//! A snapshot holds a read transaction of the backend, a thread and a few blobs until it ends,
//! and the client determines its pace.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The snapshots that are being sent.
#[derive(Debug)]
pub struct SnapshotSlots {
    /// Snapshots that may be sent at once; more are refused.
    pub snapshots_max: usize,
    free: Arc<Semaphore>,
}

impl SnapshotSlots {
    /// Creates free slots.
    pub fn new(snapshots_max: usize) -> SnapshotSlots {
        let snapshots_max = snapshots_max.min(Semaphore::MAX_PERMITS);
        SnapshotSlots {
            snapshots_max,
            free: Arc::new(Semaphore::new(snapshots_max)),
        }
    }

    /// Takes a slot until the permit is dropped; `None` if all are taken.
    pub fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }
}
