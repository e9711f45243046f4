//! Limits the snapshots of the store that are sent to clients at once.
//!
//! A snapshot holds a read transaction of the backend, a thread and a few blobs until it ends,
//! and the client determines its pace.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Snapshots that may be sent at once; more are refused.
pub const SNAPSHOTS_MAX: usize = 16;

/// The snapshots that are being sent.
#[derive(Debug)]
pub struct SnapshotSlots(Arc<Semaphore>);

impl Default for SnapshotSlots {
    fn default() -> SnapshotSlots {
        SnapshotSlots(Arc::new(Semaphore::new(SNAPSHOTS_MAX)))
    }
}

impl SnapshotSlots {
    /// Takes a slot until the permit is dropped; `None` if all are taken.
    pub fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}
