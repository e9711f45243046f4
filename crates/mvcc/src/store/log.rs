//! The revision log: the changed key of each revision, for catch-up and compaction.
//!
//! A list of blocks; the last one is filled place by place, full ones never
//! change. The apply thread appends; readers walk the list without a lock and
//! stop at the published revision.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use arc_swap::ArcSwap;

use super::slot::Slot;
use crate::revision::Revision;

const BLOCK_PLACES: usize = 1024;

/// Every change since the last compaction, in order.
#[derive(Debug, Default)]
pub(crate) struct RevisionLog {
    /// Replaced when a block is added or old ones are dropped.
    blocks: ArcSwap<Vec<Arc<Block>>>,
}

#[derive(Debug)]
struct Block {
    places: Box<[OnceLock<LogEntry>]>,
    /// Places below this are filled and never change. Written by the apply thread.
    filled: AtomicUsize,
}

/// One change of one key.
#[derive(Debug, Clone)]
pub(crate) struct LogEntry {
    pub(crate) revision: Revision,
    pub(crate) slot: Slot,
}

impl RevisionLog {
    /// Adds the newest change. Apply thread only.
    pub(crate) fn push(&self, entry: LogEntry) {
        let blocks = self.blocks.load();
        let entry = match blocks.last() {
            Some(last) => match last.try_push(entry) {
                Ok(()) => return,
                Err(entry) => entry,
            },
            None => entry,
        };
        let block = Block::new();
        // A new block has room.
        let _ = block.try_push(entry);
        let mut longer = Vec::with_capacity(blocks.len() + 1);
        longer.extend(blocks.iter().cloned());
        longer.push(Arc::new(block));
        self.blocks.store(Arc::new(longer));
    }

    /// Iterates over the current changes at or above the revision, oldest first.
    pub(crate) fn from(&self, revision: Revision) -> LogWalk {
        let blocks = self.blocks.load_full();
        let block = blocks.partition_point(|block| {
            block
                .newest()
                .is_some_and(|entry| entry.revision < revision)
        });
        let place = blocks.get(block).map_or(0, |block| {
            block.places[..block.len()]
                .partition_point(|place| place.get().is_some_and(|entry| entry.revision < revision))
        });
        LogWalk {
            blocks,
            block,
            place,
        }
    }

    /// Drops whole blocks below the main revision. Apply thread only.
    pub(crate) fn drop_below(&self, main: i64) {
        let blocks = self.blocks.load();
        let dropped = blocks.partition_point(|block| {
            block.is_full()
                && block
                    .newest()
                    .is_some_and(|entry| entry.revision.main < main)
        });
        if dropped > 0 {
            self.blocks.store(Arc::new(blocks[dropped..].to_vec()));
        }
    }
}

impl Block {
    fn new() -> Self {
        Self {
            places: (0..BLOCK_PLACES).map(|_| OnceLock::new()).collect(),
            filled: AtomicUsize::new(0),
        }
    }

    fn try_push(&self, entry: LogEntry) -> Result<(), LogEntry> {
        let filled = self.filled.load(Ordering::Relaxed);
        let Some(place) = self.places.get(filled) else {
            return Err(entry);
        };
        place.set(entry)?;
        self.filled.store(filled + 1, Ordering::Release);
        Ok(())
    }

    fn len(&self) -> usize {
        self.filled.load(Ordering::Acquire)
    }

    fn is_full(&self) -> bool {
        self.len() == self.places.len()
    }

    fn newest(&self) -> Option<&LogEntry> {
        self.len()
            .checked_sub(1)
            .and_then(|index| self.places[index].get())
    }
}

/// An iterator over the log.
pub(crate) struct LogWalk {
    blocks: Arc<Vec<Arc<Block>>>,
    block: usize,
    place: usize,
}

impl Iterator for LogWalk {
    type Item = LogEntry;

    fn next(&mut self) -> Option<LogEntry> {
        loop {
            let block = self.blocks.get(self.block)?;
            if let Some(place) = block.places.get(self.place) {
                let entry = place.get()?.clone();
                self.place += 1;
                return Some(entry);
            }
            self.block += 1;
            self.place = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(mains: std::ops::Range<i64>) -> RevisionLog {
        let log = RevisionLog::default();
        let slot = Slot::new(b"key");
        for main in mains {
            log.push(LogEntry {
                revision: Revision::first_of(main),
                slot: slot.clone(),
            });
        }
        log
    }

    fn mains(log: &RevisionLog, from: i64) -> Vec<i64> {
        log.from(Revision::first_of(from))
            .map(|entry| entry.revision.main)
            .collect()
    }

    #[test]
    fn walk_from_any_revision_crosses_blocks() {
        let end = 3 * BLOCK_PLACES as i64 + 7;
        let log = log(2..end);
        for from in [0, 2, 1024, 1025, 1026, 2049, end - 1, end] {
            assert_eq!(mains(&log, from), (from.max(2)..end).collect::<Vec<_>>());
        }
    }

    #[test]
    fn drop_below_keeps_every_change_at_or_above() {
        let end = 3 * BLOCK_PLACES as i64;
        let log = log(0..end);
        let below = 2 * BLOCK_PLACES as i64 + 5;
        log.drop_below(below);
        assert_eq!(mains(&log, below), (below..end).collect::<Vec<_>>());
        assert_eq!(mains(&log, 0)[0], 2 * BLOCK_PLACES as i64);
    }
}
