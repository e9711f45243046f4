//! Who leads, for everybody who wants to know when it changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use portunus_consensus::Leadership;
use tokio::sync::watch;

/// The newest leadership, and since when it holds. Written by consensus.
pub struct Leaders {
    newest: watch::Sender<Leadership>,
    elected_at: Mutex<Option<Instant>>,
}

impl Default for Leaders {
    fn default() -> Self {
        Leaders {
            newest: watch::Sender::new(Leadership::default()),
            elected_at: Mutex::new(None),
        }
    }
}

impl Leaders {
    /// Takes what consensus says; true if somebody else leads now.
    pub fn set(&self, leadership: Leadership) -> bool {
        let before = self.newest.send_replace(leadership);
        let is_new = leadership.leader != 0 && leadership.leader != before.leader;
        if is_new {
            *self.lock() = Some(Instant::now());
        }
        is_new
    }

    /// When the newest leader was elected, as far as this member knows.
    pub fn elected_at(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.elected_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// To be told of changes.
    pub fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.newest.subscribe()
    }
}
