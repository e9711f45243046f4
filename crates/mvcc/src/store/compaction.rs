//! Compaction: immediate for readers, in slices for memory and disk.
//!
//! ```text
//!   compact (an entry) ─▶ mark scheduled, refuse older reads
//!   step ─▶ wait for the commit, return the hash job
//!   step, step … ─▶ trim the slots that changed since the last compaction
//!   last step ─▶ mark finished
//! ```
//!
//! The records to remove follow from memory: only a key that changed since the
//! last compaction has removable versions, and the revision log lists these
//! keys. After a crash in between the two marks differ; the next start resumes
//! the compaction.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use portunus_proto::{
    EtcdError,
    etcdserverpb::{CompactionRequest, CompactionResponse},
};

use super::{Store, slot::Slot};
use crate::{
    backend::{Bucket, Change, meta, write_behind::Position},
    error::ApplyError,
    reader::CompactionHashJob,
    revision::{Revision, encode_mark},
    rules::txn::header,
};

/// The result of a compaction step.
#[derive(Debug)]
#[must_use]
pub enum CompactionStep {
    /// No compaction is unfinished.
    Idle,
    /// A commit or the hash job must end first. Try again in a while.
    Waiting,
    /// A slice was trimmed; more are left.
    Working,
    /// Run this job on another thread and continue stepping meanwhile. If it is
    /// dropped, only the hash of this compaction is missing.
    Hash(CompactionHashJob),
    /// The compaction to this revision is finished; on disk, after a flush.
    Finished {
        /// The compact revision.
        revision: i64,
    },
}

#[derive(Default)]
pub(super) struct Compactions {
    queue: VecDeque<Compaction>,
    /// The newest hash job: its revision, and whether it is still running.
    hash_job: Option<(i64, Arc<AtomicBool>)>,
}

struct Compaction {
    revision: i64,
    previous: i64,
    stage: Stage,
}

enum Stage {
    /// The hash needs all records up to the revision on disk, undeleted.
    BeforeHash { scheduled: Position },
    /// Changes below this revision are trimmed.
    Trimming { from: Revision },
}

impl Compaction {
    fn trimming(revision: i64, previous: i64) -> Self {
        let stage = Stage::Trimming {
            from: Revision::first_of(previous),
        };
        Self {
            revision,
            previous,
            stage,
        }
    }
}

impl Store {
    /// Refuses reads below a revision from now on. [`Self::compaction_step`] removes the records.
    pub fn compact(
        &mut self,
        request: &CompactionRequest,
    ) -> Result<CompactionResponse, ApplyError> {
        if self.open_entry.is_none() {
            return Err(ApplyError::OutsideEntry);
        }
        if request.revision <= self.compact_revision {
            return Err(EtcdError::Compacted.into());
        }
        if request.revision > self.revision {
            return Err(EtcdError::FutureRevision.into());
        }
        let previous = std::mem::replace(&mut self.compact_revision, request.revision);
        self.put_mark(meta::SCHEDULED_COMPACT, request.revision);
        let mut compaction = Compaction::trimming(request.revision, previous);
        // Members compare this hash, so it must cover every record since the
        // last compaction. While that one is unfinished, the set of records is
        // undefined.
        if self.compactions.queue.is_empty() {
            compaction.stage = Stage::BeforeHash {
                scheduled: self.shared.queue.next_position(),
            };
        }
        self.compactions.queue.push_back(compaction);
        Ok(CompactionResponse {
            header: Some(header(self.revision)),
        })
    }

    /// Resumes a compaction that an earlier run did not finish.
    pub(super) fn resume_compaction(&mut self, revision: i64, previous: i64) {
        let compaction = Compaction::trimming(revision, previous);
        self.compactions.queue.push_back(compaction);
    }

    /// Does a bounded slice of compaction work. Call it between entries.
    pub fn compaction_step(&mut self) -> Result<CompactionStep, ApplyError> {
        let Some(compaction) = self.compactions.queue.front() else {
            return Ok(CompactionStep::Idle);
        };
        if self.compactions.must_wait_for_hash_job() {
            return Ok(CompactionStep::Waiting);
        }
        match compaction.stage {
            Stage::BeforeHash { scheduled } => {
                if !self.shared.queue.is_committed(scheduled)? {
                    self.shared.queue.request_flush();
                    return Ok(CompactionStep::Waiting);
                }
                let (job, running) =
                    CompactionHashJob::new(&self.shared, compaction.revision, compaction.previous)?;
                let trimming = Compaction::trimming(compaction.revision, compaction.previous);
                self.compactions.hash_job = Some((compaction.revision, running));
                self.compactions.queue[0] = trimming;
                Ok(CompactionStep::Hash(job))
            }
            Stage::Trimming { from } => self.trim_slice(from, compaction.revision),
        }
    }

    /// Returns the number of records removed by compactions since the last call.
    #[must_use]
    pub fn take_compacted_records(&mut self) -> u64 {
        std::mem::take(&mut self.compacted_records)
    }

    fn trim_slice(&mut self, from: Revision, revision: i64) -> Result<CompactionStep, ApplyError> {
        let limit = self.config.compaction_batch_limit.max(1);
        let untrimmed = limit.min(self.untrimmed.len());
        for slot in self.untrimmed.drain(..untrimmed).collect::<Vec<_>>() {
            self.trim(&slot, revision);
        }
        let mut walk = self
            .shared
            .log
            .from(from)
            .take_while(|entry| entry.revision.main <= revision);
        for entry in walk.by_ref().take(limit - untrimmed) {
            self.trim(&entry.slot, revision);
        }
        let step = match walk.next() {
            Some(next) => {
                let from = next.revision;
                self.compactions.queue[0].stage = Stage::Trimming { from };
                CompactionStep::Working
            }
            None if !self.untrimmed.is_empty() => CompactionStep::Working,
            None => {
                self.compactions.queue.pop_front();
                self.put_mark(meta::FINISHED_COMPACT, revision);
                self.shared.log.drop_below(revision);
                CompactionStep::Finished { revision }
            }
        };
        self.submit_if_outside()?;
        Ok(step)
    }

    fn trim(&mut self, slot: &Slot, revision: i64) {
        let Some(trimmed) = slot.trim(revision) else {
            return;
        };
        self.residency.removed(trimmed.freed_bytes);
        self.compacted_records += trimmed.records.len() as u64;
        let deletes = trimmed.records.into_iter().map(Change::DeleteRecord);
        self.changes.extend(deletes);
        if trimmed.is_empty {
            // The key may have been created again in another slot.
            let is_indexed = self
                .index
                .get(slot.key())
                .is_some_and(|indexed| indexed.slot.address() == slot.address());
            if is_indexed {
                self.index.remove(slot.key());
                self.index_changed = true;
            }
        }
    }

    fn put_mark(&mut self, mark: &'static str, revision: i64) {
        let bucket = Bucket::Meta;
        let key = Bytes::from_static(mark.as_bytes());
        let value = Bytes::copy_from_slice(&encode_mark(revision));
        self.raw.put(bucket, key.clone(), value.clone());
        self.changes.push(Change::Put { bucket, key, value });
    }
}

impl Compactions {
    /// Whether a hash job of an earlier compaction is running. Trimming to a
    /// revision keeps what the hash of that revision needs, but not what an
    /// earlier one needs.
    fn must_wait_for_hash_job(&self) -> bool {
        let (Some(compaction), Some((hashed, running))) = (self.queue.front(), &self.hash_job)
        else {
            return false;
        };
        compaction.revision != *hashed && running.load(Ordering::Acquire)
    }
}
