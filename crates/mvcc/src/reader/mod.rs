//! Read access from any thread.
//!
//! A reader loads the published index and revision; it never waits for the
//! apply thread and never makes it wait. Only snapshots and hashes wait, for
//! the write-behind thread, because they read stored records.

mod catch_up;
mod hash;
mod stream;

use std::sync::Arc;

use bytes::Bytes;
use portunus_proto::{
    EtcdError, LeaseId,
    etcdserverpb::{RangeRequest, RangeResponse, TxnRequest, TxnResponse},
    mvccpb::KeyValue,
};

use crate::{
    backend::{Backend, BackendError, Sizes, Snapshot},
    error::{ReadError, StoreFault},
    rules::{
        range::{self, Counting},
        txn,
    },
    store::{keys_of, shared::Shared},
    watch::Event,
};
pub(crate) use hash::HashCache;
pub use hash::{CompactionHashJob, KvHash};
pub use stream::RangeStream;

/// A handle for reading. Cheap to clone; never blocks the apply thread.
#[derive(Debug, Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.shared.revision()
    }

    /// Reads below this are refused; −1 if nothing was ever compacted.
    #[must_use]
    pub fn compact_revision(&self) -> i64 {
        self.shared.compact_revision()
    }

    /// Number of keys that exist at the newest revision.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.shared.view().index.existing() as u64
    }

    /// Answers a validated range, at the newest or a named revision. Counting
    /// keys beyond the limit costs two tree walks at the newest revision; at an
    /// older one, a step for each later change.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, ReadError> {
        self.range_counting(request, Counting::All)
    }

    fn range_counting(
        &self,
        request: &RangeRequest,
        counting: Counting,
    ) -> Result<RangeResponse, ReadError> {
        self.shared.read(request.revision, |view| {
            range::evaluate(view, request, counting)
        })
    }

    /// Answers a validated transaction that only reads: compares and ranges, all at one
    /// revision.
    pub fn read_txn(&self, request: &TxnRequest) -> Result<TxnResponse, ReadError> {
        loop {
            let view = self.shared.view();
            let result = txn::read(&view, request);
            // A compaction in between may have removed versions.
            if self.compact_revision() == view.compact_revision {
                return result;
            }
        }
    }

    /// The version of a key just before a revision. `None` if the key did not exist then, or if
    /// that revision is compacted.
    pub fn version_before(
        &self,
        key: &Bytes,
        revision: i64,
    ) -> Result<Option<KeyValue>, ReadError> {
        if revision <= 1 {
            return Ok(None);
        }
        let request = RangeRequest {
            key: key.clone(),
            revision: revision - 1,
            limit: 1,
            ..RangeRequest::default()
        };
        match self.range(&request) {
            Ok(response) => Ok(response.kvs.into_iter().next()),
            Err(ReadError::Refused(EtcdError::Compacted)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the version before an event, looked up if the event does not carry it.
    pub fn prev_kv(&self, event: &Event) -> Result<Option<KeyValue>, ReadError> {
        match event.known_prev() {
            Some(prev) => Ok(prev.cloned()),
            None => self.version_before(&event.kv().key, event.kv().mod_revision),
        }
    }

    /// The keys attached to a lease, in key order.
    #[must_use]
    pub fn keys_of(&self, lease: LeaseId) -> Vec<Bytes> {
        keys_of(&self.shared.leased_keys(), lease)
            .cloned()
            .collect()
    }

    /// Sizes on disk, as of the newest commit.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.shared.backend.sizes()
    }

    /// Waits until the backend holds everything that is published now.
    pub fn flush(&self) -> Result<(), StoreFault> {
        self.shared.queue.flush()
    }

    /// Returns a snapshot of all buckets that holds at least everything
    /// published now. Waits for the write-behind thread.
    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>, ReadError> {
        self.flush()?;
        Ok(self.shared.backend.snapshot()?)
    }

    /// Returns unused disk space to the file system. Takes long; reads and applying continue.
    pub fn defragment(&self) -> Result<(), BackendError> {
        self.shared.backend.defragment()
    }

    /// Returns the backend that holds the records.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }
}
