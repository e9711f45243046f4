//! Past events, for watchers that are not synced.

use std::{ops::Not, sync::Arc};

use bytes::Bytes;
use portunus_proto::{EtcdError, mvccpb::KeyValue};

use super::Reader;
use crate::{
    error::ReadError,
    revision::Revision,
    rules::{Copies, Entry},
    store::{shared::StoredValues, slot::Slot},
    version::Version,
    watch::{Event, History, HistoryError, RevisionEvents},
};

/// The most bytes of events that one call collects, unless the first revision has more. It is about
/// what one response to a watch takes: the rest would be read from the backend again for the next one.
const COLLECTED_BYTES_MAX: usize = 1024 * 1024;

impl History for Reader {
    fn revision(&self) -> i64 {
        Reader::revision(self)
    }

    fn compact_revision(&self) -> i64 {
        Reader::compact_revision(self).max(0)
    }

    fn events_since(
        &self,
        from: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, HistoryError> {
        Reader::events_since(self, from, revisions_max).map_err(|error| match error {
            ReadError::Refused(EtcdError::Compacted) => HistoryError::Compacted {
                compact_revision: History::compact_revision(self),
            },
            error => HistoryError::Read(error),
        })
    }

    fn prev_kv(&self, key: &[u8], mod_revision: i64) -> Result<Option<KeyValue>, HistoryError> {
        let key = Bytes::copy_from_slice(key);
        self.version_before(&key, mod_revision)
            .map_err(HistoryError::Read)
    }
}

impl Reader {
    /// Returns the events from a revision on, in whole revisions, at most
    /// `revisions_max` of them and fewer if they are large, oldest first. Empty if nothing changed.
    ///
    /// A start at the compact revision is allowed; a start below it is refused.
    pub fn events_since(
        &self,
        from_revision: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, ReadError> {
        let collected = self.collect_events(from_revision, revisions_max);
        // A compaction may have removed versions during the collection; then
        // the result is incomplete.
        if from_revision < self.compact_revision() {
            return Err(EtcdError::Compacted.into());
        }
        collected
    }

    fn collect_events(
        &self,
        from_revision: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, ReadError> {
        let newest = self.revision();
        let values = StoredValues::new(&*self.shared.backend);
        let mut revisions: Vec<Arc<RevisionEvents>> = Vec::new();
        let mut main = 0;
        let mut events = Vec::new();
        let mut bytes = 0;
        let is_full = |revisions: &[Arc<RevisionEvents>], bytes: usize| {
            revisions.len() >= revisions_max || bytes >= COLLECTED_BYTES_MAX
        };
        let walk = self
            .shared
            .log
            .from(Revision::first_of(from_revision))
            .take_while(|entry| entry.revision.main <= newest);
        for entry in walk {
            if entry.revision.main != main {
                revisions.extend(take_revision(main, &mut events));
                if is_full(&revisions, bytes) {
                    return Ok(revisions);
                }
                main = entry.revision.main;
            }
            let versions = entry.slot.versions();
            // Missing only if compacted, which the caller checks.
            if let Some((version, prev)) = versions.exactly(entry.revision) {
                let event = event(&entry.slot, version, prev, &values)?;
                bytes += event.bytes_estimate(false);
                events.push(event);
            }
        }
        revisions.extend(take_revision(main, &mut events));
        Ok(revisions)
    }
}

fn take_revision(revision: i64, events: &mut Vec<Event>) -> Option<Arc<RevisionEvents>> {
    events.is_empty().not().then(|| {
        Arc::new(RevisionEvents {
            revision,
            events: std::mem::take(events).into_boxed_slice(),
        })
    })
}

fn event(
    slot: &Slot,
    version: &Version,
    prev: Option<&Version>,
    values: &StoredValues<'_>,
) -> Result<Event, ReadError> {
    let prev = prev.filter(|prev| !prev.is_tombstone());
    if version.is_tombstone() {
        return Ok(Event::after_delete(
            &slot.key_bytes(),
            version.revision.main,
            prev,
        ));
    }
    let entry = Entry {
        key: slot.key(),
        version,
        values,
    };
    Ok(Event::after_put(
        entry.key_value(true, &mut Copies::default())?,
        prev,
    ))
}
