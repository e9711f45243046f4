//! State that the apply thread publishes and readers load.
//!
//! Correctness depends on the order of stores and loads. The apply thread
//! stores the index first, then the revision: a reader that loads the revision
//! first finds every key of it in the index. It stores a compact revision
//! before it removes anything: a reader that loads the compact revision after
//! its read detects whether versions may have been missing.

use std::{
    cell::RefCell,
    collections::HashSet,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use imbl::OrdSet;
use portunus_proto::{LeaseId, mvccpb::KeyValue};
use prost::Message;

use super::{index::Index, log::RevisionLog, slot::Slot};
use crate::{
    backend::{Backend, Bucket, Snapshot, write_behind::Queue},
    error::ReadError,
    reader::HashCache,
    revision::{RecordKey, Revision},
    rules::{Entry, KeyView, ValueSource, range::KeyRange},
    version::Version,
};

/// Keys by the lease they are attached to.
pub(crate) type LeasedKeys = OrdSet<(LeaseId, Bytes)>;

#[derive(Debug)]
pub(crate) struct Shared {
    revision: AtomicI64,
    compact_revision: AtomicI64,
    index: ArcSwap<Index>,
    leased_keys: ArcSwap<LeasedKeys>,
    pub(crate) log: RevisionLog,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) hashes: HashCache,
}

impl std::fmt::Debug for dyn Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backend")
    }
}

impl Shared {
    pub(crate) fn new(
        (revision, compact_revision): (i64, i64),
        index: Index,
        leased_keys: LeasedKeys,
        log: RevisionLog,
        backend: Arc<dyn Backend>,
        queue: Arc<Queue>,
    ) -> Self {
        Self {
            revision: AtomicI64::new(revision),
            compact_revision: AtomicI64::new(compact_revision),
            index: ArcSwap::from_pointee(index),
            leased_keys: ArcSwap::from_pointee(leased_keys),
            log,
            backend,
            queue,
            hashes: HashCache::default(),
        }
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    pub(crate) fn compact_revision(&self) -> i64 {
        self.compact_revision.load(Ordering::Acquire)
    }

    pub(crate) fn leased_keys(&self) -> Arc<LeasedKeys> {
        self.leased_keys.load_full()
    }

    /// Apply thread only; before [`Self::publish_revision`].
    pub(crate) fn publish_index(&self, index: &Index) {
        self.index.store(Arc::new(index.clone()));
    }

    /// Apply thread only; before [`Self::publish_revision`].
    pub(crate) fn publish_leased_keys(&self, leased_keys: &LeasedKeys) {
        self.leased_keys.store(Arc::new(leased_keys.clone()));
    }

    /// Apply thread only; makes all changes up to the revision visible.
    pub(crate) fn publish_revision(&self, revision: i64) {
        self.revision.store(revision, Ordering::Release);
    }

    /// Apply thread only; after the revision, before anything is removed.
    pub(crate) fn publish_compact_revision(&self, compact_revision: i64) {
        self.compact_revision
            .store(compact_revision, Ordering::Release);
    }

    /// Returns the newest state, at a revision that is not compacted.
    pub(crate) fn view(&self) -> View<'_> {
        loop {
            let revision = self.revision();
            let view = View {
                revision,
                index: self.index.load_full(),
                compact_revision: self.compact_revision(),
                log: &self.log,
                values: StoredValues::new(&*self.backend),
            };
            // A newer revision was compacted between the two loads; very rare.
            if view.compact_revision <= revision {
                return view;
            }
        }
    }

    /// Repeats a read until no compaction invalidated it.
    ///
    /// `requested` is the revision of the request. A compaction above it is an
    /// error for the client; if the newest revision was requested, the read is
    /// repeated at the current newest one.
    pub(crate) fn read<R>(
        &self,
        requested: i64,
        read: impl Fn(&View<'_>) -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        loop {
            let view = self.view();
            let result = read(&view);
            let revision = match requested {
                ..=0 => view.revision,
                named => named,
            };
            if self.compact_revision() <= revision {
                return result;
            }
            if requested > 0 {
                return Err(portunus_proto::EtcdError::Compacted.into());
            }
        }
    }
}

/// One consistent state. Cheap to take, never changes for its revision.
pub(crate) struct View<'a> {
    pub(crate) revision: i64,
    pub(crate) compact_revision: i64,
    pub(crate) index: Arc<Index>,
    log: &'a RevisionLog,
    values: StoredValues<'a>,
}

impl KeyView for View<'_> {
    fn revision(&self) -> i64 {
        self.revision
    }

    fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    fn visit(
        &self,
        range: &KeyRange,
        revision: i64,
        visit: impl FnMut(Entry<'_>) -> Result<ControlFlow<()>, ReadError>,
    ) -> Result<(), ReadError> {
        visit_index(&self.index, range, revision, &self.values, visit)
    }

    fn count(&self, range: &KeyRange, revision: i64) -> i64 {
        count_index(&self.index, self.log, range, revision)
    }
}

/// Visits the keys of an index that exist at a revision.
pub(crate) fn visit_index(
    index: &Index,
    range: &KeyRange,
    revision: i64,
    values: &dyn ValueSource,
    mut visit: impl FnMut(Entry<'_>) -> Result<ControlFlow<()>, ReadError>,
) -> Result<(), ReadError> {
    let is_newest = revision >= index.changed_at();
    let mut failed = None;
    let _ = index.visit(range, &mut |indexed| {
        if is_newest && !indexed.exists {
            return ControlFlow::Continue(());
        }
        let versions = indexed.slot.versions();
        let visited = match versions.at(revision) {
            Some(version) if !version.is_tombstone() => visit(Entry {
                key: indexed.slot.key(),
                version,
                values,
            }),
            _ => Ok(ControlFlow::Continue(())),
        };
        visited.unwrap_or_else(|error| {
            failed = Some(error);
            ControlFlow::Break(())
        })
    });
    failed.map_or(Ok(()), Err)
}

/// Counts the keys of an index that exist at a revision.
///
/// The index holds the count for its newest revision. For an older one the
/// changes in between are scanned, or the keys of the range if those are fewer.
pub(crate) fn count_index(
    index: &Index,
    log: &RevisionLog,
    range: &KeyRange,
    revision: i64,
) -> i64 {
    const CHANGES_MIN: usize = 64;
    let newest_count = index.count(range);
    if revision >= index.changed_at() {
        return newest_count as i64;
    }
    let exists_at_revision = |slot: &Slot| {
        slot.versions()
            .at(revision)
            .is_some_and(|version| !version.is_tombstone())
    };
    let mut count = newest_count as i64;
    let mut seen = HashSet::new();
    let mut changes = log
        .from(Revision::first_of(revision + 1))
        .take_while(|entry| entry.revision.main <= index.changed_at());
    for entry in changes.by_ref().take(newest_count.max(CHANGES_MIN)) {
        if range.contains(entry.slot.key()) && seen.insert(entry.slot.address()) {
            let exists_now = index.get(entry.slot.key()).is_some_and(|key| key.exists);
            count += i64::from(exists_at_revision(&entry.slot)) - i64::from(exists_now);
        }
    }
    if changes.next().is_some() {
        count = 0;
        let _ = index.visit(range, &mut |indexed| {
            count += i64::from(exists_at_revision(&indexed.slot));
            ControlFlow::Continue(())
        });
    }
    count
}

/// Loads values from the backend. The snapshot is taken at the first load and reused.
pub(crate) struct StoredValues<'a> {
    backend: &'a dyn Backend,
    snapshot: RefCell<Option<Box<dyn Snapshot>>>,
}

impl<'a> StoredValues<'a> {
    pub(crate) fn new(backend: &'a dyn Backend) -> Self {
        Self {
            backend,
            snapshot: RefCell::new(None),
        }
    }

    fn find(&self, key: RecordKey) -> Result<Option<Bytes>, ReadError> {
        let mut kept = self.snapshot.borrow_mut();
        let key = key.encode();
        if let Some(snapshot) = &*kept
            && let Some(record) = snapshot.get(Bucket::Key, &key)?
        {
            return Ok(Some(record));
        }
        // The value may have been committed and evicted after the snapshot was
        // taken. A new snapshot has it.
        let fresh = kept.insert(self.backend.snapshot()?);
        Ok(fresh.get(Bucket::Key, &key)?)
    }
}

impl ValueSource for StoredValues<'_> {
    fn load(&self, version: &Version) -> Result<Bytes, ReadError> {
        let revision = version.revision;
        let record = self
            .find(version.record_key())?
            .ok_or(ReadError::MissingRecord(revision))?;
        let record = KeyValue::decode(record)
            .map_err(|source| ReadError::DamagedRecord { revision, source })?;
        Ok(record.value)
    }
}
