//! Failure reports to the member, delivered by a task.
//!
//! [`Transport::send`](crate::Transport::send) runs while the member's lock is held and must
//! not call the member. Pending reports about one peer are merged, so their number is bounded
//! by the number of peers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::raft::Raft;
use crate::sync::lock;

#[derive(Default)]
pub(crate) struct Reports {
    pending: Mutex<Pending>,
    added: Notify,
}

#[derive(Default)]
struct Pending {
    unreachable: BTreeSet<u64>,
    snapshot_failed: BTreeSet<u64>,
}

impl Reports {
    /// Reports that a message to this peer was lost.
    pub fn unreachable(&self, peer: u64) {
        lock(&self.pending).unreachable.insert(peer);
        self.added.notify_one();
    }

    /// Reports that a snapshot for this peer was not sent.
    pub fn snapshot_failed(&self, peer: u64) {
        lock(&self.pending).snapshot_failed.insert(peer);
        self.added.notify_one();
    }

    /// Delivers reports until the task is aborted.
    pub async fn deliver(&self, raft: Arc<dyn Raft>) {
        loop {
            self.added.notified().await;
            let pending = std::mem::take(&mut *lock(&self.pending));
            for peer in pending.unreachable {
                raft.report_unreachable(peer);
            }
            for peer in pending.snapshot_failed {
                raft.report_snapshot(peer, false);
            }
        }
    }
}
