//! The small buckets, held completely in memory.
//!
//! Members, leases, users, roles, alarms and marks are few and small compared
//! to keys. A read of this copy sees uncommitted writes without the backend or
//! the queue.

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;

use crate::backend::{BackendError, Bucket, Snapshot};

#[derive(Debug, Default)]
pub(crate) struct RawBuckets {
    buckets: [BTreeMap<Bytes, Bytes>; Bucket::ALL.len()],
}

impl RawBuckets {
    /// Loads all buckets except the `key` bucket.
    pub(crate) fn load(snapshot: &dyn Snapshot) -> Result<Self, BackendError> {
        let mut raw = Self::default();
        for bucket in Bucket::ALL.into_iter().filter(|b| *b != Bucket::Key) {
            let entries = &mut raw.buckets[bucket as usize];
            snapshot.scan(bucket, b"", &mut |key, value| {
                entries.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                ControlFlow::Continue(())
            })?;
        }
        Ok(raw)
    }

    pub(crate) fn get(&self, bucket: Bucket, key: &[u8]) -> Option<&Bytes> {
        self.buckets[bucket as usize].get(key)
    }

    pub(crate) fn iter(&self, bucket: Bucket) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.buckets[bucket as usize].iter()
    }

    pub(crate) fn put(&mut self, bucket: Bucket, key: Bytes, value: Bytes) {
        self.buckets[bucket as usize].insert(key, value);
    }

    pub(crate) fn delete(&mut self, bucket: Bucket, key: &[u8]) -> bool {
        self.buckets[bucket as usize].remove(key).is_some()
    }
}
