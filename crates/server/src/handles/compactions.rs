//! How far compactions are finished, and the clients that wait for that.

use tokio::sync::watch;

/// The revision up to which compactions are finished, on disk as well.
pub struct CompactionProgress {
    finished: watch::Sender<i64>,
}

impl Default for CompactionProgress {
    fn default() -> CompactionProgress {
        CompactionProgress {
            finished: watch::Sender::new(0),
        }
    }
}

impl CompactionProgress {
    /// Waits until everything that a compaction to `revision` removes is removed, on disk as
    /// well.
    pub async fn finished(&self, revision: i64) {
        let mut finished = self.finished.subscribe();
        // The sender lives as long as `self`.
        let _ = finished.wait_for(|it| *it >= revision).await;
    }

    /// The revision that waiting clients were notified of.
    pub fn finished_revision(&self) -> i64 {
        *self.finished.borrow()
    }

    /// Notifies the clients that wait for a compaction up to `revision`.
    pub fn advance(&self, revision: i64) {
        self.finished.send_if_modified(|finished| {
            let is_later = revision > *finished;
            *finished = revision.max(*finished);
            is_later
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The handler begins to wait after the compaction is applied, perhaps after its end.
    #[tokio::test]
    async fn wait_for_a_compaction_ends_if_begun_before_or_after_it() {
        let progress = CompactionProgress::default();
        progress.advance(7);
        progress.advance(5);
        progress.finished(6).await;
        let short = Duration::from_millis(20);
        assert!(
            tokio::time::timeout(short, progress.finished(8))
                .await
                .is_err()
        );
        let waiting = progress.finished(8);
        progress.advance(8);
        waiting.await;
    }
}
