//! Selects the values that stay in memory.
//!
//! Above the budget the values of superseded versions are evicted first, then
//! those of newest versions, oldest writes first. Uncommitted values stay. An
//! evicted value is read from the backend each time; it does not become
//! resident again.

use std::collections::VecDeque;

use super::slot::Slot;
use crate::{revision::Revision, version::Version};

/// When the budget is exceeded, `1 / FREED_AT_ONCE` of it is freed, so that
/// slots are not rewritten for every put.
const FREED_AT_ONCE: usize = 8;

pub(crate) struct Residency {
    bytes_max: usize,
    resident_bytes: usize,
    superseded: Candidates,
    newest: Candidates,
}

/// Versions in the order of eviction. Some may have been evicted or compacted since.
#[derive(Default)]
struct Candidates {
    queue: VecDeque<(Slot, Revision)>,
    sweep_at: usize,
}

impl Residency {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            resident_bytes: 0,
            superseded: Candidates::default(),
            newest: Candidates::default(),
        }
    }

    /// Records that a version was added above `previous`.
    pub(crate) fn added(
        &mut self,
        slot: &Slot,
        version_bytes: usize,
        revision: Revision,
        previous: Option<&Version>,
    ) {
        self.resident_bytes += version_bytes;
        if self.bytes_max == 0 {
            return;
        }
        if let Some(previous) = previous.filter(|version| version.value.resident_bytes() > 0) {
            self.superseded.push(slot, previous.revision);
        }
        if version_bytes > 0 {
            self.newest.push(slot, revision);
        }
    }

    /// Records that compaction removed versions with resident values.
    pub(crate) fn removed(&mut self, freed_bytes: usize) {
        self.resident_bytes -= freed_bytes;
    }

    /// Evicts values up to revision `committed` until memory is within the budget.
    pub(crate) fn enforce(&mut self, committed: i64) {
        if self.bytes_max == 0 || self.resident_bytes <= self.bytes_max {
            return;
        }
        let target = self.bytes_max - self.bytes_max / FREED_AT_ONCE;
        for (candidates, with_newest) in [(&mut self.superseded, false), (&mut self.newest, true)] {
            while self.resident_bytes > target
                && let Some((slot, revision)) = candidates.pop_committed(committed)
            {
                let is_candidate = is_resident(&slot, revision)
                    && (!with_newest
                        || slot.versions().newest().map(|v| v.revision) == Some(revision));
                if is_candidate {
                    self.resident_bytes -= slot.evict(committed, with_newest);
                }
            }
        }
    }
}

impl Candidates {
    fn push(&mut self, slot: &Slot, revision: Revision) {
        const SWEEP_AT_MIN: usize = 1024;
        // Without this a store below its budget would keep an entry for every write.
        if self.queue.len() > self.sweep_at.max(SWEEP_AT_MIN) {
            self.queue
                .retain(|(slot, revision)| is_resident(slot, *revision));
            self.sweep_at = self.queue.len() * 2;
        }
        self.queue.push_back((slot.clone(), revision));
    }

    fn pop_committed(&mut self, committed: i64) -> Option<(Slot, Revision)> {
        self.queue
            .pop_front_if(|(_, revision)| revision.main <= committed)
    }
}

fn is_resident(slot: &Slot, revision: Revision) -> bool {
    slot.versions()
        .exactly(revision)
        .is_some_and(|(version, _)| version.value.resident_bytes() > 0)
}
