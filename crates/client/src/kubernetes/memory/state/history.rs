//! Keys with all revisions that were not compacted, and the log of changes that watches read.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use portunus_proto::EtcdError;

use crate::ClientError;
use crate::kubernetes::{Error, KeyValue};

/// The revision of an empty store, as in etcd.
const REVISION_FIRST: i64 = 1;
/// What a version of a key takes beside its key and value, in the accounting of the quota.
const VERSION_OVERHEAD_BYTES: usize = 128;

/// A key or the keys with a prefix.
#[derive(Debug, Clone)]
pub(in crate::kubernetes::memory) enum KeyRange {
    /// One key.
    Key(Bytes),
    /// All keys with a prefix.
    Prefix(Bytes),
}

impl KeyRange {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::Key(own) => own == key,
            Self::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// A change of a key in a transaction.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The key.
    pub(super) key: Bytes,
    /// The pair after the change; `None` for a deletion.
    pub(super) current: Option<KeyValue>,
    /// The pair before the change.
    pub(super) previous: Option<KeyValue>,
}

/// The new value of a key in a transaction: value and lease, or `None` for a deletion.
pub(super) type NewValue = Option<(Bytes, i64)>;

#[derive(Debug)]
struct KeyVersion {
    revision: i64,
    kv: Option<KeyValue>,
}

/// Keys and changes by revision.
#[derive(Debug)]
pub(super) struct History {
    keys: BTreeMap<Bytes, Vec<KeyVersion>>,
    log: BTreeMap<i64, Vec<Change>>,
    revision: i64,
    /// The oldest revision that can be read; 0 before the first compaction.
    compact_revision: i64,
    bytes: usize,
    quota_bytes: usize,
}

impl History {
    pub(super) fn new(quota_bytes: usize) -> Self {
        Self {
            keys: BTreeMap::new(),
            log: BTreeMap::new(),
            revision: REVISION_FIRST,
            compact_revision: 0,
            bytes: 0,
            quota_bytes,
        }
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    pub(super) fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    /// Returns the revision that a read with this option reads.
    pub(super) fn readable(&self, revision: i64) -> Result<i64, Error> {
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        if revision > 0 && revision < self.compact_revision {
            return Err(self.compacted());
        }
        Ok(if revision == 0 {
            self.revision
        } else {
            revision
        })
    }

    pub(super) fn compacted(&self) -> Error {
        Error::Compacted {
            compact_revision: Some(self.compact_revision),
        }
    }

    /// Returns the newest pair of a key.
    pub(super) fn newest(&self, key: &[u8]) -> Option<&KeyValue> {
        self.keys.get(key)?.last()?.kv.as_ref()
    }

    /// Returns the pair of a key at a readable revision.
    pub(super) fn at(&self, key: &[u8], revision: i64) -> Option<&KeyValue> {
        version_at(self.keys.get(key)?, revision)
    }

    /// Iterates over the pairs from `start` with a prefix at a readable revision, in key order.
    pub(super) fn range<'h>(
        &'h self,
        start: &[u8],
        prefix: &'h [u8],
        revision: i64,
    ) -> impl Iterator<Item = &'h KeyValue> {
        let bounds = (Bound::Included(start), Bound::Unbounded);
        let from_start = self.keys.range::<[u8], _>(bounds);
        from_start
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter_map(move |(_, versions)| version_at(versions, revision))
    }

    /// Returns an error if the store has no space for a write.
    pub(super) fn check_space(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.bytes + cost(key, value) > self.quota_bytes {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Applies the writes of a transaction in one revision and returns its changes; none if all
    /// writes delete keys that do not exist. Then there is no new revision.
    pub(super) fn commit(&mut self, writes: Vec<(Bytes, NewValue)>) -> Vec<Change> {
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for (key, new_value) in writes {
            let previous = self.newest(&key).cloned();
            let current = new_value.map(|(value, lease)| KeyValue {
                key: key.clone(),
                value,
                mod_revision: revision,
                create_revision: previous.as_ref().map_or(revision, |kv| kv.create_revision),
                version: previous.as_ref().map_or(0, |kv| kv.version) + 1,
                lease,
            });
            if current.is_none() && previous.is_none() {
                continue;
            }
            self.bytes += cost_of(&key, current.as_ref());
            self.keys.entry(key.clone()).or_default().push(KeyVersion {
                revision,
                kv: current.clone(),
            });
            changes.push(Change {
                key,
                current,
                previous,
            });
        }
        if !changes.is_empty() {
            self.revision = revision;
            self.log.insert(revision, changes.clone());
        }
        changes
    }

    /// Returns the first revision of the log from `revision` on that has changes in a range.
    pub(super) fn next_change(&self, range: &KeyRange, revision: i64) -> Option<i64> {
        let mut later = self.log.range(revision..);
        let found = later.find(|(_, changes)| changes.iter().any(|it| range.contains(&it.key)));
        found.map(|(revision, _)| *revision)
    }

    /// Returns the changes of a revision.
    pub(super) fn changes(&self, revision: i64) -> &[Change] {
        self.log.get(&revision).map_or(&[], Vec::as_slice)
    }

    /// Returns an error if the history cannot be compacted at a revision.
    pub(super) fn check_compaction(&self, revision: i64) -> Result<(), Error> {
        if revision <= self.compact_revision {
            return Err(self.compacted());
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        Ok(())
    }

    /// Removes what only reads and watches before `revision` need.
    pub(super) fn compact(&mut self, revision: i64) {
        self.compact_revision = revision;
        self.log = self.log.split_off(&revision);
        let mut bytes = 0;
        self.keys.retain(|key, versions| {
            let newer = versions.partition_point(|version| version.revision <= revision);
            let mut first = newer.saturating_sub(1);
            if versions
                .get(first)
                .is_some_and(|it| it.kv.is_none() && it.revision <= revision)
            {
                first += 1;
            }
            versions.drain(..first);
            bytes += versions
                .iter()
                .map(|it| cost_of(key, it.kv.as_ref()))
                .sum::<usize>();
            !versions.is_empty()
        });
        self.bytes = bytes;
    }
}

fn version_at(versions: &[KeyVersion], revision: i64) -> Option<&KeyValue> {
    let newer = versions.partition_point(|version| version.revision <= revision);
    versions.get(newer.checked_sub(1)?)?.kv.as_ref()
}

fn cost_of(key: &[u8], kv: Option<&KeyValue>) -> usize {
    cost(key, kv.map_or(&[], |kv| &kv.value))
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + VERSION_OVERHEAD_BYTES
}

/// Returns an error of etcd's table that the interface has no variant for.
pub(super) fn etcd_error(error: EtcdError) -> Error {
    Error::from(ClientError::Etcd(error))
}
