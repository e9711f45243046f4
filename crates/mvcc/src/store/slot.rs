//! All versions of one key since the last compaction.
//!
//! Versions are in an array that only grows at its end, oldest first, so any
//! revision is found by binary search. A full array is replaced by one twice as
//! long; compaction and eviction replace it by one with fewer versions or
//! values. Readers that hold the old array continue to use it.
//!
//! Only the apply thread changes a slot. Readers read at a published revision
//! and so never see a version that is being added: its revision is greater.
//!
//! Every key of the store has a slot, so it is small: one allocation with the
//! key in it, one for the array, and a thin pointer to each.

use std::{
    ffi::c_void,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::{ArcSwapAny, Guard};
use bytes::Bytes;
use triomphe::ThinArc;

use crate::{
    revision::{RecordKey, Revision},
    rules::keep,
    version::{Value, Version},
};

/// One key and its versions. Clones share the slot.
#[derive(Debug, Clone)]
pub(crate) struct Slot(ThinArc<ArcSwapAny<Places>, u8>);

/// The number of filled places, counted from the first, and the places. The
/// apply thread writes the count after the place.
type Places = ThinArc<AtomicUsize, OnceLock<Version>>;

/// The versions of a slot at the time of loading, oldest first.
pub(crate) struct Versions(Guard<Places>);

/// The versions that a compaction removed from a slot.
pub(crate) struct Trimmed {
    /// Records to delete from the backend.
    pub(crate) records: Vec<RecordKey>,
    /// Bytes of resident values that were removed.
    pub(crate) freed_bytes: usize,
    /// No version is left: the key can be removed from the index.
    pub(crate) is_empty: bool,
}

impl Slot {
    pub(crate) fn new(key: &[u8]) -> Self {
        let versions = ArcSwapAny::new(places(1, std::iter::empty()));
        Self(ThinArc::from_header_and_slice(versions, key))
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0.slice
    }

    /// Copies the key, for a message.
    pub(crate) fn key_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.key())
    }

    /// Identifies the slot as long as it is held.
    pub(crate) fn address(&self) -> *const c_void {
        self.0.as_ptr()
    }

    /// Loads the current versions.
    pub(crate) fn versions(&self) -> Versions {
        Versions(self.0.header.header.load())
    }

    /// Adds the newest version. Apply thread only.
    pub(crate) fn push(&self, version: Version) {
        let versions = self.versions();
        if let Err(version) = versions.try_push(version) {
            let old = versions.iter().cloned();
            self.replace(places(versions.len() * 2, old.chain([version])));
        }
    }

    /// Removes the versions that a compaction to the revision drops. Apply thread only.
    pub(crate) fn trim(&self, revision: i64) -> Option<Trimmed> {
        let versions = self.versions();
        let at_or_below = versions.count_at_or_below(revision);
        let newest = at_or_below.checked_sub(1).and_then(|i| versions.get(i));
        let removed = keep::removed_by_compaction(at_or_below, newest, revision);
        if removed == 0 {
            return None;
        }
        let left = versions.len() - removed;
        let trimmed = Trimmed {
            records: versions
                .iter()
                .take(removed)
                .map(Version::record_key)
                .collect(),
            freed_bytes: versions
                .iter()
                .take(removed)
                .map(|version| version.value.resident_bytes())
                .sum(),
            is_empty: left == 0,
        };
        self.replace(places(left, versions.iter().skip(removed).cloned()));
        Some(trimmed)
    }

    /// Evicts values at or below revision `committed`: of all but the newest
    /// version, or of the newest too. Returns the freed bytes. Apply thread
    /// only.
    pub(crate) fn evict(&self, committed: i64, with_newest: bool) -> usize {
        let versions = self.versions();
        let evictable = match with_newest {
            true => versions.len(),
            false => versions.len().saturating_sub(1),
        };
        let leaves = |index: usize, version: &Version| {
            index < evictable
                && version.revision.main <= committed
                && matches!(version.value, Value::Resident(_))
        };
        let freed_bytes: usize = versions
            .iter()
            .enumerate()
            .filter(|(index, version)| leaves(*index, version))
            .map(|(_, version)| version.value.resident_bytes())
            .sum();
        if freed_bytes == 0 {
            return 0;
        }
        let lighter = versions.iter().enumerate().map(|(index, version)| {
            let mut version = version.clone();
            if leaves(index, &version) {
                version.value = Value::InBackend;
            }
            version
        });
        self.replace(places(versions.places().len(), lighter));
        freed_bytes
    }

    fn replace(&self, places: Places) {
        self.0.header.header.store(places);
    }
}

/// Builds an array of `number` places, at least one, and fills the first of
/// them. `versions` has at most `number` items.
fn places(number: usize, mut versions: impl Iterator<Item = Version>) -> Places {
    let mut filled = 0;
    let places = (0..number.max(1)).map(|_| match versions.next() {
        Some(version) => {
            filled += 1;
            OnceLock::from(version)
        }
        None => OnceLock::new(),
    });
    let places = ThinArc::from_header_and_iter(AtomicUsize::new(0), places);
    places.header.header.store(filled, Ordering::Release);
    places
}

impl Versions {
    fn places(&self) -> &[OnceLock<Version>] {
        &self.0.slice
    }

    /// Adds a version; returns it if every place is filled.
    fn try_push(&self, version: Version) -> Result<(), Version> {
        let filled = self.0.header.header.load(Ordering::Relaxed);
        let Some(place) = self.places().get(filled) else {
            return Err(version);
        };
        place.set(version)?;
        self.0.header.header.store(filled + 1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.header.header.load(Ordering::Acquire)
    }

    fn get(&self, index: usize) -> Option<&Version> {
        self.places().get(index).and_then(OnceLock::get)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Version> {
        self.places()
            .iter()
            .take(self.len())
            .map_while(OnceLock::get)
    }

    /// The newest version, tombstone or not.
    pub(crate) fn newest(&self) -> Option<&Version> {
        self.len().checked_sub(1).and_then(|index| self.get(index))
    }

    /// The newest version at or below a main revision, tombstone or not.
    pub(crate) fn at(&self, revision: i64) -> Option<&Version> {
        self.count_at_or_below(revision)
            .checked_sub(1)
            .and_then(|index| self.get(index))
    }

    /// The version of exactly this revision, and the newest one before its transaction.
    pub(crate) fn exactly(&self, revision: Revision) -> Option<(&Version, Option<&Version>)> {
        let index = self.partition(|version| version.revision < revision);
        let version = self.get(index).filter(|v| v.revision == revision)?;
        Some((version, self.at(revision.main - 1)))
    }

    fn count_at_or_below(&self, revision: i64) -> usize {
        let len = self.len();
        // Most reads are at the newest revision.
        if let Some(newest) = len.checked_sub(1).and_then(|index| self.get(index))
            && newest.revision.main <= revision
        {
            return len;
        }
        self.partition(|version| version.revision.main <= revision)
    }

    fn partition(&self, goes_left: impl Fn(&Version) -> bool) -> usize {
        self.places()[..self.len()].partition_point(|place| place.get().is_some_and(&goes_left))
    }
}

#[cfg(test)]
mod tests {
    use portunus_proto::LeaseId;

    use super::*;

    fn put(main: i64) -> Version {
        Version {
            revision: Revision::first_of(main),
            create_revision: 2,
            version: 1,
            lease: LeaseId::NONE,
            value: Value::resident(b"value"),
        }
    }

    fn slot(versions: impl IntoIterator<Item = Version>) -> Slot {
        let slot = Slot::new(b"key");
        versions.into_iter().for_each(|version| slot.push(version));
        slot
    }

    fn revisions(slot: &Slot) -> Vec<i64> {
        slot.versions().iter().map(|v| v.revision.main).collect()
    }

    #[test]
    fn lookup_finds_every_revision_at_any_length() {
        for length in 1..40 {
            let slot = slot((1..=length).map(|i| put(i * 10)));
            for revision in 0..=length * 10 + 5 {
                let expected = (revision / 10 > 0).then_some((revision / 10).min(length) * 10);
                let found = slot.versions().at(revision).map(|v| v.revision.main);
                assert_eq!(found, expected, "length {length} at {revision}");
            }
        }
    }

    #[test]
    fn reader_keeps_its_versions_after_a_trim() {
        let slot = slot([put(2), put(3)]);
        let held = slot.versions();
        slot.trim(3);
        assert_eq!(revisions(&slot), [3]);
        assert_eq!(held.at(2).map(|v| v.revision.main), Some(2));
    }

    #[test]
    fn trim_keeps_the_versions_readable_at_the_revision() {
        let tombstone = |main| Version::tombstone(Revision::first_of(main));
        // (history, compact revision, remaining revisions)
        let cases: [(Vec<Version>, i64, &[i64]); 7] = [
            (vec![put(2), put(4), put(6)], 1, &[2, 4, 6]),
            (vec![put(2), put(4), put(6)], 4, &[4, 6]),
            (vec![put(2), put(4), put(6)], 5, &[4, 6]),
            (vec![put(2), tombstone(4)], 3, &[2, 4]),
            // The delete at the revision itself stays, an older one goes.
            (vec![put(2), tombstone(4)], 4, &[4]),
            (vec![put(2), tombstone(4)], 5, &[]),
            (vec![put(2), tombstone(4), put(7)], 5, &[7]),
        ];
        for (history, revision, left) in cases {
            let before = history.len();
            let slot = slot(history);
            let trimmed = slot.trim(revision);
            assert_eq!(revisions(&slot), left);
            assert_eq!(
                trimmed.as_ref().map_or(0, |t| t.records.len()),
                before - left.len()
            );
            assert_eq!(trimmed.is_some_and(|t| t.is_empty), left.is_empty());
        }
    }

    #[test]
    fn evict_keeps_uncommitted_values() {
        let slot = slot([put(2), put(3), put(4)]);
        assert_eq!(slot.evict(2, false), 5);
        assert_eq!(slot.evict(2, true), 0);
        assert_eq!(slot.evict(9, false), 5);
        assert_eq!(slot.evict(9, true), 5);
        assert!(slot.versions().iter().all(|v| v.value == Value::InBackend));
    }
}
