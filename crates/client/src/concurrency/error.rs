//! Why a lock or an election failed.

use crate::error::ClientError;
use crate::lease_guard::LeaseLost;

/// Why a lock was not acquired or released, or a campaign failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConcurrencyError {
    /// The session lost its lease, and with it all its locks.
    #[error("the session is lost: all its locks are released")]
    SessionLost(#[source] LeaseLost),
    /// Somebody deleted the key of the lock or of the leader.
    #[error("the key {key:?} was deleted: its lock or leadership is lost")]
    KeyDeleted {
        /// The key, lossily as text.
        key: String,
    },
    /// The server's error, or a timeout.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl ConcurrencyError {
    pub(super) fn key_deleted(key: &[u8]) -> Self {
        Self::KeyDeleted {
            key: String::from_utf8_lossy(key).into_owned(),
        }
    }
}
