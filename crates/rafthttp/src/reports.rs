//! Bad news for the member, delivered by a task.
//!
//! Whoever sends holds the member's own lock, so nobody may call the member from there.
//! News about the same peer is merged: what waits is bounded by the number of peers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::raft::Raft;
use crate::sync::lock;

#[derive(Default)]
pub(crate) struct Reports {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Default)]
struct Waiting {
    unreachable: BTreeSet<u64>,
    snapshot_failed: BTreeSet<u64>,
}

impl Reports {
    /// A message to this peer was lost.
    pub fn unreachable(&self, peer: u64) {
        lock(&self.waiting).unreachable.insert(peer);
        self.news.notify_one();
    }

    /// A snapshot for this peer was not sent.
    pub fn snapshot_failed(&self, peer: u64) {
        lock(&self.waiting).snapshot_failed.insert(peer);
        self.news.notify_one();
    }

    /// Delivers, for as long as it is let.
    pub async fn deliver(&self, raft: Arc<dyn Raft>) {
        loop {
            self.news.notified().await;
            let news = std::mem::take(&mut *lock(&self.waiting));
            for peer in news.unreachable {
                raft.report_unreachable(peer);
            }
            for peer in news.snapshot_failed {
                raft.report_snapshot(peer, false);
            }
        }
    }
}
