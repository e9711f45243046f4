//! The changes of one revision during an entry.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use portunus_proto::{LeaseId, mvccpb::KeyValue};

use super::{
    Store,
    log::LogEntry,
    shared::{StoredValues, count_index, visit_index},
    slot::Slot,
};
use crate::{
    backend::Change,
    error::ReadError,
    revision::Revision,
    rules::{Entry, KeyView, range::KeyRange, txn::WriteView},
    version::{Value, Version},
    watch::{Event, RevisionEvents},
};

/// Changes that share one revision. Readers see them only after the entry ends.
pub(super) struct Transaction<'a> {
    store: &'a mut Store,
    events: Vec<Event>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(store: &'a mut Store) -> Self {
        Self {
            store,
            events: Vec::new(),
        }
    }

    /// Advances the revision if anything changed, and returns the events.
    pub(super) fn finish(self) -> Option<Arc<RevisionEvents>> {
        if self.events.is_empty() {
            return None;
        }
        self.store.revision += 1;
        Some(Arc::new(RevisionEvents {
            revision: self.store.revision,
            events: self.events.into_boxed_slice(),
        }))
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.events.is_empty()
    }

    fn next_revision(&self) -> Revision {
        Revision {
            main: self.store.revision + 1,
            sub: self.events.len() as i64,
        }
    }

    /// Removes a key that exists.
    pub(super) fn delete_slot(&mut self, slot: &Slot) {
        let revision = self.next_revision();
        let key = slot.key_bytes();
        // The record of a tombstone holds only the key.
        let record = KeyValue {
            key: key.clone(),
            ..KeyValue::default()
        };
        let prev = self.add(slot, Version::tombstone(revision), record);
        self.store
            .index
            .set_exists(slot.key(), false, revision.main);
        self.store.index_changed = true;
        let event = Event::after_delete(&key, revision.main, prev.as_ref());
        self.events.push(event);
    }

    /// Adds a version to its slot, the log, the next commit and the lease
    /// attachments. Returns the version that was live before this transaction.
    fn add(&mut self, slot: &Slot, version: Version, record: KeyValue) -> Option<Version> {
        let store = &mut *self.store;
        let versions = slot.versions();
        let previous = versions.newest();
        let old_lease = previous.map_or(LeaseId::NONE, |previous| previous.lease);
        if old_lease != version.lease {
            store.attach(&slot.key_bytes(), old_lease, version.lease);
        }
        let prev = versions
            .at(version.revision.main - 1)
            .filter(|version| !version.is_tombstone())
            .cloned();
        let revision = version.revision;
        store
            .residency
            .added(slot, version.value.resident_bytes(), revision, previous);
        store.changes.push(Change::PutRecord {
            key: version.record_key(),
            record,
        });
        drop(versions);
        slot.push(version);
        store.shared.log.push(LogEntry {
            revision,
            slot: slot.clone(),
        });
        prev
    }

    /// Returns the slot of a key and marks the key as existing.
    fn slot_for(&mut self, key: &Bytes) -> Slot {
        let revision = self.store.revision + 1;
        if let Some(indexed) = self.store.index.get(key) {
            let slot = indexed.slot.clone();
            if !indexed.exists {
                self.store.index.set_exists(key, true, revision);
                self.store.index_changed = true;
            }
            return slot;
        }
        let slot = Slot::new(key);
        self.store.index.insert(slot.clone(), true, revision);
        self.store.index_changed = true;
        slot
    }
}

impl KeyView for Transaction<'_> {
    fn revision(&self) -> i64 {
        self.store.revision + i64::from(self.has_changes())
    }

    fn compact_revision(&self) -> i64 {
        self.store.compact_revision
    }

    fn visit(
        &self,
        range: &KeyRange,
        revision: i64,
        visit: impl FnMut(Entry<'_>) -> Result<ControlFlow<()>, ReadError>,
    ) -> Result<(), ReadError> {
        let values = StoredValues::new(&*self.store.shared.backend);
        visit_index(&self.store.index, range, revision, &values, visit)
    }

    fn count(&self, range: &KeyRange, revision: i64) -> i64 {
        count_index(&self.store.index, &self.store.shared.log, range, revision)
    }
}

impl WriteView for Transaction<'_> {
    fn put(&mut self, key: &Bytes, value: Bytes, lease: LeaseId) {
        let revision = self.next_revision();
        let slot = self.slot_for(key);
        let versions = slot.versions();
        let live = versions.newest().filter(|newest| !newest.is_tombstone());
        let version = Version {
            revision,
            create_revision: live.map_or(revision.main, |live| live.create_revision),
            version: live.map_or(0, |live| live.version) + 1,
            lease,
            value: Value::resident(&value),
        };
        drop(versions);
        let record = version.with_value(key.clone(), value);
        let prev = self.add(&slot, version, record.clone());
        self.events.push(Event::after_put(record, prev.as_ref()));
    }

    fn delete(&mut self, range: &KeyRange) -> i64 {
        let mut slots = Vec::new();
        let _ = self.store.index.visit(range, &mut |indexed| {
            if indexed.exists {
                slots.push(indexed.slot.clone());
            }
            ControlFlow::Continue(())
        });
        for slot in &slots {
            self.delete_slot(slot);
        }
        slots.len() as i64
    }
}
