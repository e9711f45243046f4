//! An in-memory store with the [interface](super::Interface), for tests of code above it.
//!
//! It has etcd's semantics: revisions, history with compaction, leases, watches with previous
//! values and bookmarks. Its clock stands still until [`Memory::advance`], so that tests of leases
//! do not wait. It needs no runtime.
//!
//! ```
//! use portunus_client::kubernetes::{GetOptions, Interface, Memory, PutOptions};
//!
//! # tokio_test_block_on(async {
//! let store = Memory::new();
//! let created = store
//!     .optimistic_put(b"/registry/pods/a", "spec".into(), 0, PutOptions::default())
//!     .await?;
//! assert!(created.succeeded);
//! let read = store.get(b"/registry/pods/a", GetOptions::default()).await?;
//! assert_eq!(read.kv.unwrap().mod_revision, created.revision);
//! # Ok::<(), portunus_client::kubernetes::Error>(())
//! # });
//! # fn tokio_test_block_on<T>(test: impl Future<Output = Result<T, portunus_client::kubernetes::Error>>) {
//! #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test).unwrap();
//! # }
//! ```

mod state;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;

use self::state::{KeyRange, Polled, State, Written};
use super::arguments::{check_get, check_list, check_watch, check_write};
use super::{
    CountOptions, DeleteOptions, DeleteResponse, Error, GetOptions, GetResponse, Interface,
    ListOptions, ListResponse, PutOptions, PutResponse, RequestProgressOptions, WatchEvent,
    WatchEvents, WatchOptions,
};

/// The default of the quota: the size of the history after which writes fail.
const QUOTA_BYTES_DEFAULT: usize = 1024 * 1024 * 1024;

/// A write of a [transaction](Memory::write).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Creates or changes a key.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// The lease, or 0.
        lease: i64,
    },
    /// Deletes a key, if it exists.
    Delete {
        /// The key.
        key: Bytes,
    },
}

impl Write {
    fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// An in-memory store. Clones are handles of the same store.
#[derive(Debug, Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// The consumers that wait for an event of their watch.
    wakers: BTreeMap<u64, Waker>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Creates an empty store at revision 1.
    #[must_use]
    pub fn new() -> Self {
        Self::with_quota(QUOTA_BYTES_DEFAULT)
    }

    /// Creates an empty store whose puts fail with [`Error::NoSpace`] when its history reaches a
    /// size. A compaction frees space.
    #[must_use]
    pub fn with_quota(bytes: usize) -> Self {
        let inner = Inner {
            state: State::new(bytes),
            wakers: BTreeMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                inner: Mutex::new(inner),
            }),
        }
    }

    /// Returns the revision of the store.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.shared.lock().state.revision()
    }

    /// Returns the oldest revision that can be read, or 0 if the store was never compacted.
    #[must_use]
    pub fn compact_revision(&self) -> i64 {
        self.shared.lock().state.compact_revision()
    }

    /// Writes several keys in one transaction, whatever their revisions. Returns the revision of
    /// the store.
    ///
    /// # Errors
    /// If there are more than 128 writes, two writes of one key, an empty key, an unknown lease or
    /// no space; then nothing is written.
    pub fn write(&self, writes: Vec<Write>) -> Result<i64, Error> {
        self.change(|state| state.write(writes))
    }

    /// Removes the history before a revision, which itself can still be read.
    ///
    /// # Errors
    /// [`Error::Compacted`] and [`Error::FutureRevision`].
    pub fn compact(&self, revision: i64) -> Result<(), Error> {
        self.change(|state| state.compact(revision))
    }

    /// Grants a lease and returns its id.
    #[must_use]
    pub fn grant_lease(&self, ttl: Duration) -> i64 {
        self.change(|state| state.grant_lease(ttl))
    }

    /// Starts the TTL of a lease again.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`].
    pub fn renew_lease(&self, id: i64) -> Result<(), Error> {
        self.change(|state| state.renew_lease(id))
    }

    /// Removes a lease and deletes its keys in one revision.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`].
    pub fn revoke_lease(&self, id: i64) -> Result<(), Error> {
        self.change(|state| state.revoke_lease(id))
    }

    /// Returns the keys of a lease, in key order.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`].
    pub fn lease_keys(&self, id: i64) -> Result<Vec<Bytes>, Error> {
        self.shared.lock().state.lease_keys(id)
    }

    /// Advances the clock of the store; leases that expire are revoked.
    pub fn advance(&self, time: Duration) {
        self.change(|state| state.advance(time));
    }

    /// Sends a bookmark to every watch, as etcd does in intervals.
    pub fn notify_progress(&self) {
        self.change(State::notify_progress);
    }

    /// Ends the watches of a stream with [`Error::Canceled`], after the events that happened
    /// before.
    pub fn cancel_watches(&self, stream_key: &str, reason: &str) {
        self.change(|state| state.cancel_watches(stream_key, reason));
    }

    /// Changes the state and wakes the consumers of all watches.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut inner = self.shared.lock();
        let outcome = change(&mut inner.state);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_values().for_each(Waker::wake);
        outcome
    }
}

impl Shared {
    /// A panic while the lock was held can only come from a failed allocation; the state has no
    /// half-done change that matters to a test then.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Interface for Memory {
    async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error> {
        check_get(key, &options)?;
        self.shared.lock().state.get(key, options.revision)
    }

    async fn list(&self, prefix: &[u8], options: ListOptions) -> Result<ListResponse, Error> {
        check_list(prefix, &options)?;
        self.shared.lock().state.list(prefix, &options)
    }

    async fn count(&self, prefix: &[u8], _options: CountOptions) -> Result<i64, Error> {
        Ok(self.shared.lock().state.count(prefix))
    }

    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        expected_revision: i64,
        options: PutOptions,
    ) -> Result<PutResponse, Error> {
        check_write(key, expected_revision)?;
        let write = Write::Put {
            key: Bytes::copy_from_slice(key),
            value,
            lease: options.lease_id,
        };
        let Written {
            succeeded,
            kv,
            revision,
        } = self.change(|state| state.write_if(expected_revision, write))?;
        Ok(PutResponse {
            succeeded,
            kv: kv.filter(|_| options.get_on_failure),
            revision,
        })
    }

    async fn optimistic_delete(
        &self,
        key: &[u8],
        expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error> {
        check_write(key, expected_revision)?;
        let write = Write::Delete {
            key: Bytes::copy_from_slice(key),
        };
        let Written {
            succeeded,
            kv,
            revision,
        } = self.change(|state| state.write_if(expected_revision, write))?;
        Ok(DeleteResponse {
            succeeded,
            kv: kv.filter(|_| options.get_on_failure),
            revision,
        })
    }

    async fn watch(&self, key: &[u8], options: WatchOptions) -> Result<WatchEvents, Error> {
        check_watch(key, &options)?;
        let key = Bytes::copy_from_slice(key);
        let range = match options.prefix {
            true => KeyRange::Prefix(key),
            false => KeyRange::Key(key),
        };
        let mut inner = self.shared.lock();
        let id = inner
            .state
            .create_watch(range, options.stream_key, options.revision);
        Ok(WatchEvents::new(MemoryWatch {
            shared: Arc::clone(&self.shared),
            id,
        }))
    }

    async fn request_progress(&self, options: RequestProgressOptions) -> Result<(), Error> {
        self.change(|state| state.request_progress(&options.stream_key))
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<i64, Error> {
        Ok(Memory::grant_lease(self, ttl))
    }
}

/// The events of one watch.
struct MemoryWatch {
    shared: Arc<Shared>,
    id: u64,
}

impl Stream for MemoryWatch {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let mut inner = self.shared.lock();
        match inner.state.poll_watch(self.id) {
            Polled::Event(event) => Poll::Ready(Some(event)),
            Polled::End => Poll::Ready(None),
            Polled::Pending => {
                inner.wakers.insert(self.id, context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.state.remove_watch(self.id);
        inner.wakers.remove(&self.id);
    }
}
