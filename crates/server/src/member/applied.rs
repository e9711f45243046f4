//! How far the log is applied, for everybody who waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// The applied index and its term. Only the apply thread moves it.
pub struct Applied {
    index: watch::Sender<u64>,
    term: AtomicU64,
}

impl Applied {
    /// Starts where the backend is.
    pub fn new(index: u64, term: u64) -> Applied {
        Applied {
            index: watch::Sender::new(index),
            term: AtomicU64::new(term),
        }
    }

    /// Everything up to `index` is applied and visible.
    pub fn advance(&self, index: u64, term: u64) {
        self.term.store(term, Ordering::Release);
        self.index.send_replace(index);
    }

    /// The newest applied index.
    pub fn index(&self) -> u64 {
        *self.index.borrow()
    }

    /// The term of that entry.
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// Waits until `index` is applied.
    pub async fn wait_for(&self, index: u64) {
        if self.index() >= index {
            return;
        }
        // The sender lives as long as the member, so this cannot end early.
        let _ = self
            .index
            .subscribe()
            .wait_for(|applied| *applied >= index)
            .await;
    }
}
