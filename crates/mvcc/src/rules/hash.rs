//! The hash members compare, byte for byte etcd's.

use crate::{
    backend::{Bucket, meta},
    revision::{RecordKey, Revision},
};

/// Revisions at or below the compaction that still count.
#[derive(Debug, Clone, Default)]
pub struct KeepSet {
    /// Ascending.
    at_or_below_compaction: Vec<Revision>,
    any: bool,
}

impl KeepSet {
    /// From every revision kept, in any order. Those above the compaction are
    /// counted, not stored: they are hashed anyway.
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

    /// An empty set keeps everything: so etcd has it. Not what a compaction is about to
    /// remove, or the hash would tell how far it is; `survivors` are what it leaves.
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
    /// Begins the hash at `revision` of a store compacted to `compact_revision`.
    #[must_use]
    pub fn new(revision: i64, compact_revision: i64, keep: KeepSet) -> Self {
        Self {
            crc: crc32c::crc32c(Bucket::Key.name().as_bytes()),
            revision,
            compact_revision,
            keep,
        }
    }

    /// Adds a record if it counts. Records come in bucket order.
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

    /// Whether records at this main revision and above cannot count.
    #[must_use]
    pub fn is_beyond(&self, main: i64) -> bool {
        main > self.revision
    }

    /// The hash of what was written.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.crc
    }
}

/// CRC-32C over whole buckets, without what differs between equal members.
#[derive(Debug, Default)]
pub struct BucketsHasher {
    crc: u32,
}

impl BucketsHasher {
    /// Begins the next bucket; they come in name order.
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

    /// The hash of what was written.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.crc
    }
}
