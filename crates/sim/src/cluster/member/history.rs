//! The history that the watch hub reads, with planted bugs.

use std::sync::Arc;

use portunus_mvcc::Reader;
use portunus_mvcc::watch::{Event, EventKind, History, HistoryError, RevisionEvents};
use portunus_proto::mvccpb::KeyValue;

use super::super::planted::PlantedBug;

/// The store's history, or a wrong one.
pub(super) struct PlantedHistory<'a> {
    pub(super) reader: &'a Reader,
    pub(super) bug: Option<PlantedBug>,
}

impl History for PlantedHistory<'_> {
    fn revision(&self) -> i64 {
        History::revision(self.reader)
    }

    fn compact_revision(&self) -> i64 {
        match self.bug {
            Some(PlantedBug::CompactedWatchGoesOn) => 0,
            _ => History::compact_revision(self.reader),
        }
    }

    fn events_since(
        &self,
        from: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, HistoryError> {
        let compacted = History::compact_revision(self.reader);
        let from = match self.bug {
            Some(PlantedBug::CompactedWatchGoesOn) => from.max(compacted),
            _ => from,
        };
        let mut events = History::events_since(self.reader, from, revisions_max)?;
        match self.bug {
            Some(PlantedBug::LosesDeleteAtCompactRevision) => {
                let is_lost = |it: &Arc<RevisionEvents>| {
                    let deletes = |event: &Event| event.kind() == EventKind::Delete;
                    it.revision == compacted && it.events.iter().all(deletes)
                };
                events.retain(|it| !is_lost(it));
            }
            Some(PlantedBug::CatchUpSkipsRevision) if events.len() > 2 => {
                events.remove(1);
            }
            _ => {}
        }
        Ok(events)
    }

    fn prev_kv(&self, key: &[u8], mod_revision: i64) -> Result<Option<KeyValue>, HistoryError> {
        History::prev_kv(self.reader, key, mod_revision)
    }
}
