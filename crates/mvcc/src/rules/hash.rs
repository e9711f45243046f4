//! The hashes that members compare, equal to etcd's.

use crate::{
    backend::{Bucket, meta},
    revision::{RecordKey, Revision},
};

/// Revisions at or below the compact revision that the hash includes.
#[derive(Debug, Clone, Default)]
pub struct KeepSet {
    /// Ascending.
    at_or_below_compaction: Vec<Revision>,
    any: bool,
}

impl KeepSet {
    /// Builds the set from every kept revision, in any order. Those above the
    /// compact revision are not stored: they are always hashed.
    pub fn new(kept: impl IntoIterator<Item = Revision>, compact_revision: i64) -> Self {
        let mut any = false;
        let mut at_or_below_compaction: Vec<_> = kept
            .into_iter()
            .inspect(|_| any = true)
            .filter(|revision| revision.main <= compact_revision)
            .collect();
        at_or_below_compaction.sort_unstable();
        Self {
            at_or_below_compaction,
            any,
        }
    }

    /// Replaces an empty set, which in etcd keeps everything, by `survivors`: the revisions that
    /// the compaction leaves. So the hash does not depend on the progress of a running compaction.
    #[must_use]
    pub fn or_all<R: Iterator<Item = Revision>>(self, survivors: impl FnOnce() -> R) -> Self {
        if self.any {
            return self;
        }
        let mut at_or_below_compaction: Vec<_> = survivors().collect();
        at_or_below_compaction.sort_unstable();
        Self {
            at_or_below_compaction,
            any: true,
        }
    }

    fn contains(&self, revision: Revision) -> bool {
        !self.any || self.at_or_below_compaction.binary_search(&revision).is_ok()
    }
}

/// CRC-32C over the records of the `key` bucket up to a revision.
#[derive(Debug)]
pub struct KvHasher {
    crc: u32,
    revision: i64,
    compact_revision: i64,
    keep: KeepSet,
}

impl KvHasher {
    /// Starts the hash at `revision` of a store compacted to `compact_revision`.
    #[must_use]
    pub fn new(revision: i64, compact_revision: i64, keep: KeepSet) -> Self {
        Self {
            crc: crc32c::crc32c(Bucket::Key.name().as_bytes()),
            revision,
            compact_revision,
            keep,
        }
    }

    /// Adds a record if the hash includes it. Call it in bucket order.
    pub fn write(&mut self, key: RecordKey, key_bytes: &[u8], record_bytes: &[u8]) {
        let main = key.revision.main;
        let counts = main <= self.revision
            && (main > self.compact_revision || self.keep.contains(key.revision))
            && !(main == self.compact_revision && key.tombstone);
        if counts {
            self.crc = crc32c::crc32c_append(self.crc, key_bytes);
            self.crc = crc32c::crc32c_append(self.crc, record_bytes);
        }
    }

    /// Whether the hash includes no record at this main revision and above.
    #[must_use]
    pub fn is_beyond(&self, main: i64) -> bool {
        main > self.revision
    }

    /// Returns the hash.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.crc
    }
}

/// CRC-32C over whole buckets, without entries that differ between equal members.
#[derive(Debug, Default)]
pub struct BucketsHasher {
    crc: u32,
}

impl BucketsHasher {
    /// Starts the next bucket. Call it in name order.
    pub fn bucket(&mut self, bucket: Bucket) {
        self.crc = crc32c::crc32c_append(self.crc, bucket.name().as_bytes());
    }

    /// Adds an entry of the bucket.
    pub fn entry(&mut self, bucket: Bucket, key: &[u8], value: &[u8]) {
        const LOCAL: [&str; 3] = [meta::CONSISTENT_INDEX, meta::TERM, meta::STORAGE_VERSION];
        if bucket == Bucket::Meta && LOCAL.iter().any(|local| local.as_bytes() == key) {
            return;
        }
        self.crc = crc32c::crc32c_append(self.crc, key);
        self.crc = crc32c::crc32c_append(self.crc, value);
    }

    /// Returns the hash.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.crc
    }
}
