//! The writer: one store, owned by the apply thread.
//!
//! An entry is `begin`, its changes, `end`. Changes are made in memory at once,
//! but readers see them only after `end`, which queues them for the backend and
//! then publishes them. So answer clients and publish events after `end`.

mod compaction;
pub(crate) mod index;
mod log;
mod raw;
mod record;
mod residency;
mod restore;
pub(crate) mod shared;
pub(crate) mod slot;
mod transaction;

use std::{collections::VecDeque, fmt, sync::Arc};

use bytes::Bytes;
use portunus_proto::{
    LeaseId, Term,
    etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, TxnRequest, TxnResponse,
    },
};

use crate::{
    backend::{
        Backend, Bucket, Change, Sizes,
        write_behind::{Position, WriteBehind},
    },
    config::Config,
    error::{ApplyError, ReadError, StoreFault},
    lease::record_key,
    reader::Reader,
    rules::{
        lease::LeaseLookup,
        txn::{self, Path, RangeResults},
    },
    watch::RevisionEvents,
};
pub use compaction::CompactionStep;
use compaction::Compactions;
use index::Index;
use raw::RawBuckets;
use residency::Residency;
pub use restore::{Hooks, RestoreProgress, Restored};
use shared::{LeasedKeys, Shared};
use slot::Slot;
use transaction::Transaction;

/// Position of an entry in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EntryId {
    /// Index of the entry.
    pub index: u64,
    /// Term of the leader that proposed it.
    pub term: Term,
}

/// The answer to an applied request, and what it changed.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Applied<R> {
    /// The response for the client. Its header carries only the revision.
    pub response: R,
    /// The events for watchers. `None` if the revision did not change.
    pub events: Option<Arc<RevisionEvents>>,
}

/// The key-value state machine.
pub struct Store {
    shared: Arc<Shared>,
    write_behind: WriteBehind,
    index: Index,
    index_changed: bool,
    leased_keys: LeasedKeys,
    leased_keys_changed: bool,
    revision: i64,
    compact_revision: i64,
    raw: RawBuckets,
    residency: Residency,
    compactions: Compactions,
    /// Records removed by compactions and not yet taken by the caller.
    compacted_records: u64,
    /// Slots an earlier store left untrimmed; the next compaction trims them.
    untrimmed: VecDeque<Slot>,
    /// The newest ended entry; after opening, the newest one in the backend.
    applied: Option<EntryId>,
    /// The entry between `begin` and `end`.
    open_entry: Option<EntryId>,
    /// The changes of the open entry for the next commit.
    changes: Vec<Change>,
    /// A read failed in the middle of a transaction; see [`StoreFault::HalfApplied`].
    half_applied: bool,
    config: Config,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("revision", &self.revision)
            .field("compact_revision", &self.compact_revision)
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Returns a handle for other threads.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// The revision of the newest change, ended or not.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Reads below this are refused; −1 if nothing was ever compacted.
    #[must_use]
    pub fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    /// The newest entry applied.
    #[must_use]
    pub fn applied(&self) -> Option<EntryId> {
        self.applied
    }

    /// Begins the next entry. Indexes only grow.
    pub fn begin(&mut self, entry: EntryId) -> Result<(), ApplyError> {
        if let Some(open) = self.open_entry {
            return Err(ApplyError::EntryNotEnded(open.index));
        }
        if self.half_applied {
            return Err(StoreFault::HalfApplied.into());
        }
        if let Some(applied) = self.applied.filter(|applied| entry.index <= applied.index) {
            return Err(ApplyError::IndexWentBack {
                offered: entry.index,
                applied: applied.index,
            });
        }
        self.open_entry = Some(entry);
        Ok(())
    }

    /// Ends the entry: queues its changes for the backend and publishes them.
    pub fn end(&mut self) -> Result<(), ApplyError> {
        let entry = self.open_entry.take().ok_or(ApplyError::OutsideEntry)?;
        self.applied = Some(entry);
        self.submit()?;
        self.residency
            .enforce(self.shared.queue.committed_revision());
        Ok(())
    }

    /// Writes a key.
    pub fn put(
        &mut self,
        request: &PutRequest,
        leases: &dyn LeaseLookup,
    ) -> Result<Applied<PutResponse>, ApplyError> {
        self.transaction(|txn| {
            txn::check_put(txn, leases, request)?;
            txn::execute_put(txn, request)
        })
    }

    /// Removes keys.
    pub fn delete_range(
        &mut self,
        request: &DeleteRangeRequest,
    ) -> Result<Applied<DeleteRangeResponse>, ApplyError> {
        self.transaction(|txn| txn::execute_delete(txn, request))
    }

    /// Runs a transaction. If no client of this member waits for the answer,
    /// its ranges need not be executed.
    pub fn txn(
        &mut self,
        request: &TxnRequest,
        leases: &dyn LeaseLookup,
        ranges: RangeResults,
    ) -> Result<Applied<TxnResponse>, ApplyError> {
        self.transaction(|txn| {
            let path = Path::choose(txn, request)?;
            path.check(txn, leases, request)?;
            path.execute(txn, request, ranges)
        })
    }

    /// Removes a lease's record and every key attached to it, in key order, in
    /// one revision. The lessor checks that the lease exists.
    pub fn revoke_lease(
        &mut self,
        lease: LeaseId,
    ) -> Result<Option<Arc<RevisionEvents>>, ApplyError> {
        let slots: Vec<_> = self
            .keys_of(lease)
            .filter_map(|key| Some(self.index.get(key)?.slot.clone()))
            .collect();
        let applied = self.transaction(|txn| {
            slots.iter().for_each(|slot| txn.delete_slot(slot));
            Ok(())
        })?;
        self.delete_raw(Bucket::Lease, &record_key(lease))?;
        Ok(applied.events)
    }

    /// The keys attached to a lease, in key order.
    pub fn keys_of(&self, lease: LeaseId) -> impl Iterator<Item = &Bytes> {
        keys_of(&self.leased_keys, lease)
    }

    /// Sets an entry of another bucket, in the commit of the open entry, or of
    /// the newest applied entry if none is open.
    pub fn put_raw(&mut self, bucket: Bucket, key: Bytes, value: Bytes) -> Result<(), ApplyError> {
        self.raw.put(bucket, key.clone(), value.clone());
        self.changes.push(Change::Put { bucket, key, value });
        self.submit_if_outside()
    }

    /// Removes an entry of another bucket; see [`Self::put_raw`].
    pub fn delete_raw(&mut self, bucket: Bucket, key: &[u8]) -> Result<(), ApplyError> {
        if self.raw.delete(bucket, key) {
            let key = Bytes::copy_from_slice(key);
            self.changes.push(Change::Delete { bucket, key });
        }
        self.submit_if_outside()
    }

    /// Returns the current value of an entry of another bucket. Not of the
    /// `key` bucket, and not the applied index and term: see [`Self::applied`].
    #[must_use]
    pub fn get_raw(&self, bucket: Bucket, key: &[u8]) -> Option<&Bytes> {
        self.raw.get(bucket, key)
    }

    /// Returns all current entries of another bucket in key order.
    pub fn iter_raw(&self, bucket: Bucket) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.raw.iter(bucket)
    }

    /// Sizes on disk, as of the newest commit.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.shared.backend.sizes()
    }

    /// Commits everything applied on this thread, in a store with
    /// [`Commits::OnCall`](crate::Commits::OnCall). Otherwise it does nothing.
    ///
    /// # Errors
    /// If the backend failed.
    pub fn commit(&self) -> Result<(), StoreFault> {
        self.shared.queue.commit()
    }

    /// Waits until the backend holds everything applied.
    pub fn flush(&self) -> Result<(), StoreFault> {
        self.shared.queue.flush()
    }

    /// Flushes and closes the store. A store dropped without this loses
    /// uncommitted changes, as in a crash; the log still holds them.
    pub fn close(self) -> Result<(), StoreFault> {
        self.flush()
    }

    /// Returns the backend that holds the records.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    fn transaction<R>(
        &mut self,
        run: impl FnOnce(&mut Transaction<'_>) -> Result<R, ReadError>,
    ) -> Result<Applied<R>, ApplyError> {
        if self.open_entry.is_none() {
            return Err(ApplyError::OutsideEntry);
        }
        let mut txn = Transaction::new(self);
        match run(&mut txn) {
            Ok(response) => Ok(Applied {
                response,
                events: txn.finish(),
            }),
            Err(error) => {
                // Refusals precede the first change.
                let half_applied = txn.has_changes();
                self.half_applied |= half_applied;
                Err(error.into())
            }
        }
    }

    fn attach(&mut self, key: &Bytes, old_lease: LeaseId, lease: LeaseId) {
        if old_lease != LeaseId::NONE {
            self.leased_keys.remove(&(old_lease, key.clone()));
        }
        if lease != LeaseId::NONE {
            self.leased_keys.insert((lease, key.clone()));
        }
        self.leased_keys_changed = true;
    }

    fn submit_if_outside(&mut self) -> Result<(), ApplyError> {
        if self.open_entry.is_none() {
            self.submit()?;
        }
        Ok(())
    }

    /// Queues the changes, then publishes them, so that a reader can flush every revision it sees.
    fn submit(&mut self) -> Result<Position, StoreFault> {
        let position =
            self.write_behind
                .queue()
                .submit(&mut self.changes, self.applied, self.revision)?;
        if std::mem::take(&mut self.index_changed) {
            self.shared.publish_index(&self.index);
        }
        if std::mem::take(&mut self.leased_keys_changed) {
            self.shared.publish_leased_keys(&self.leased_keys);
        }
        self.shared.publish_revision(self.revision);
        self.shared.publish_compact_revision(self.compact_revision);
        Ok(position)
    }
}

/// The keys attached to a lease, in key order.
pub(crate) fn keys_of(leased_keys: &LeasedKeys, lease: LeaseId) -> impl Iterator<Item = &Bytes> {
    leased_keys
        .range((lease, Bytes::new())..)
        .take_while(move |(attached_to, _)| *attached_to == lease)
        .map(|(_, key)| key)
}
