//! A backend without a disk, for tests and models.
//!
//! Clones share the content, so a test can simulate a crash: drop a store
//! without a flush and open another one on the committed state.

use std::{
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use imbl::OrdMap;
use prost::Message;

use super::{Backend, BackendError, Bucket, Change, Sizes, Snapshot, Visit};

/// Buckets in memory; snapshots are cheap.
#[derive(Debug, Clone, Default)]
pub struct MemoryBackend {
    state: Arc<Mutex<State>>,
}

type Buckets = [OrdMap<Bytes, Bytes>; Bucket::ALL.len()];

#[derive(Debug, Default)]
struct State {
    buckets: Buckets,
    fail_next_commit: bool,
    fail_next_snapshot: bool,
    poisoned: bool,
}

impl MemoryBackend {
    /// Creates an empty backend.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns another backend with the content of the newest commit, as a snapshot file has it.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = State {
            buckets: self.lock().buckets.clone(),
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Makes the next commit fail, as on a broken disk.
    pub fn fail_next_commit(&self) {
        self.lock().fail_next_commit = true;
    }

    /// The next snapshot cannot be taken, as when the disk cannot be read for a moment.
    pub fn fail_next_snapshot(&self) {
        self.lock().fail_next_snapshot = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Commits build new maps and replace the old ones in one assignment, so
        // a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryBackend {
    fn commit(&self, changes: &[Change]) -> Result<(), BackendError> {
        let mut state = self.lock();
        if state.poisoned {
            return Err(BackendError::Poisoned);
        }
        if std::mem::take(&mut state.fail_next_commit) {
            state.poisoned = true;
            return Err(BackendError::Injected);
        }
        let mut buckets = state.buckets.clone();
        for change in changes {
            match change {
                Change::PutRecord { key, record } => {
                    let key = Bytes::copy_from_slice(&key.encode());
                    buckets[Bucket::Key as usize].insert(key, record.encode_to_vec().into());
                }
                Change::PutEncodedRecord { key, record } => {
                    let key = Bytes::copy_from_slice(&key.encode());
                    buckets[Bucket::Key as usize].insert(key, record.clone());
                }
                Change::DeleteRecord(key) => {
                    buckets[Bucket::Key as usize].remove(&*key.encode());
                }
                Change::Put { bucket, key, value } => {
                    buckets[*bucket as usize].insert(key.clone(), value.clone());
                }
                Change::Delete { bucket, key } => {
                    buckets[*bucket as usize].remove(key);
                }
            }
        }
        state.buckets = buckets;
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, BackendError> {
        let mut state = self.lock();
        if std::mem::take(&mut state.fail_next_snapshot) {
            return Err(BackendError::Injected);
        }
        Ok(Box::new(state.buckets.clone()))
    }

    fn sizes(&self) -> Sizes {
        let state = self.lock();
        let bytes: usize = state
            .buckets
            .iter()
            .flat_map(OrdMap::iter)
            .map(|(key, value)| key.len() + value.len())
            .sum();
        Sizes {
            total_bytes: bytes as u64,
            in_use_bytes: bytes as u64,
        }
    }

    fn defragment(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

impl Snapshot for Buckets {
    fn get(&self, bucket: Bucket, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        Ok(self[bucket as usize].get(key).cloned())
    }

    fn scan(&self, bucket: Bucket, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BackendError> {
        let bounds = (Bound::Included(from), Bound::Unbounded);
        for (key, value) in self[bucket as usize].range::<_, [u8]>(bounds) {
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}
