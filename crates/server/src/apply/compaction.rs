//! Compaction work between entries, and the clients that wait for its end.

use std::sync::Arc;
use std::time::Instant;

use portunus_mvcc::{CompactionHashJob, CompactionStep, StoreFault};

use super::{ApplyThread, ApplyThreadError};
use crate::error_chain::chain;

/// The compactions that the apply thread works on.
pub(super) struct Compactions {
    has_work: bool,
    /// When the current compaction began, for the metrics.
    began: Instant,
    /// The revisions of compactions whose clients wait for the end.
    awaited: Vec<i64>,
}

impl Compactions {
    /// Starts with work to look for.
    pub(super) fn with_work() -> Compactions {
        Compactions {
            has_work: true,
            began: Instant::now(),
            awaited: Vec::new(),
        }
    }

    /// Whether work may be left.
    pub(super) fn has_work(&self) -> bool {
        self.has_work
    }

    /// Looks for work in another store; clients keep waiting.
    pub(super) fn restart(&mut self) {
        self.has_work = true;
        self.began = Instant::now();
    }

    /// Records that a compaction began, and whether its client waits for the end.
    pub(super) fn began(&mut self, revision: i64, is_physical: bool) {
        if is_physical {
            self.awaited.push(revision);
        }
        let another_is_unfinished = std::mem::replace(&mut self.has_work, true);
        if !another_is_unfinished {
            self.began = Instant::now();
        }
    }

    /// Whether a client waits for a compaction up to `revision`, where `finished` is the revision
    /// that clients were notified of.
    fn is_awaited(&mut self, revision: i64, finished: i64) -> bool {
        self.awaited.retain(|awaited| *awaited > finished);
        self.awaited.iter().any(|awaited| *awaited <= revision)
    }
}

impl ApplyThread {
    /// Does one slice of compaction work. Returns whether there is more.
    pub(super) fn compaction_step(&mut self) -> Result<bool, ApplyThreadError> {
        let started = Instant::now();
        let step = self
            .machine
            .compaction_step()
            .map_err(|source| ApplyThreadError::Compaction { source })?;
        let metrics = &self.outputs.process.metrics.compaction;
        if let CompactionStep::Working | CompactionStep::Finished { .. } = step {
            metrics.slice(self.machine.take_compacted_records(), started.elapsed());
        }
        match step {
            CompactionStep::Idle => {
                self.compactions.has_work = false;
                metrics.pending.set(0);
                // A snapshot of the leader may contain finished compactions.
                let revision = self.machine.reader().compact_revision();
                self.report_finished(revision);
                return Ok(false);
            }
            CompactionStep::Waiting | CompactionStep::Working => {}
            CompactionStep::Hash(job) => self.hash(job),
            CompactionStep::Finished { revision } => {
                metrics.finished(self.compactions.began.elapsed());
                // The next compaction of the queue, if there is one, begins now.
                self.compactions.began = Instant::now();
                tracing::info!(revision, "compaction finished");
                self.report_finished(revision);
            }
        }
        Ok(true)
    }

    /// Computes the hash of a compaction on a separate thread.
    fn hash(&self, job: CompactionHashJob) {
        let stop = Arc::clone(&self.outputs.process.stop);
        let spawned = std::thread::Builder::new()
            .name("compaction-hash".to_owned())
            .spawn(move || match job.run() {
                Ok(_) => {}
                Err(error) if error.is_damage() => stop.fatal(&error),
                Err(error) => tracing::warn!(
                    reason = chain(&error),
                    "the hash of a compaction could not be computed"
                ),
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for the hash of a compaction; it will not be known");
        }
    }

    /// Reports the end of a compaction once it is durable, if a client waits for it. Flushing
    /// waits for the disk, so another thread does it.
    fn report_finished(&mut self, revision: i64) {
        let finished = self.outputs.store.compactions.finished_revision();
        if !self.compactions.is_awaited(revision, finished) {
            return;
        }
        let (store, stop) = (
            Arc::clone(&self.outputs.store),
            Arc::clone(&self.outputs.process.stop),
        );
        let reader = self.machine.reader();
        let spawned = std::thread::Builder::new()
            .name("compaction-flush".to_owned())
            .spawn(move || match reader.flush() {
                Ok(()) => store.compactions.advance(revision),
                // A snapshot of the leader has replaced the store; that store reports its own.
                Err(StoreFault::Closed) => {}
                Err(fault) => stop.fatal(&fault),
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to wait for the end of a compaction; clients that wait for it time out");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_compaction_is_reported_while_its_clients_wait() {
        let mut compactions = Compactions::with_work();
        compactions.began(5, true);
        compactions.began(7, false);
        compactions.began(9, true);
        assert!(!compactions.is_awaited(4, 0));
        assert!(compactions.is_awaited(7, 0));
        // A snapshot of the leader replaced the store before it was flushed.
        assert!(
            compactions.is_awaited(7, 0),
            "clients of 5 were not notified"
        );
        assert!(!compactions.is_awaited(7, 7), "clients of 5 were notified");
        assert!(compactions.is_awaited(12, 7));
    }
}
