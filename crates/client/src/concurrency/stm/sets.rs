//! What a transaction has read and will write.

use std::collections::BTreeMap;

use bytes::Bytes;
use portunus_proto::mvccpb::KeyValue;

use crate::request::{Compare, Delete, Op, Put};

/// A key that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read {
    /// The pair; `None` if the key does not exist.
    pub(super) kv: Option<KeyValue>,
    /// The revision of the store at the read.
    pub(super) revision: i64,
}

impl Read {
    pub(super) fn mod_revision(&self) -> i64 {
        self.kv.as_ref().map_or(0, |kv| kv.mod_revision)
    }
}

/// Reads that were made before a transaction asks for them.
pub(super) type Prefetched = BTreeMap<Bytes, Read>;

/// The keys that were read.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadSet(pub(super) BTreeMap<Bytes, Read>);

impl ReadSet {
    /// Returns the conditions that no key has changed since it was read.
    pub(super) fn unchanged(&self) -> impl Iterator<Item = Compare> {
        let reads = self.0.iter();
        reads.map(|(key, read)| Compare::mod_revision(key).equals(read.mod_revision()))
    }

    /// Returns the revision of the store at the first read.
    pub(super) fn first_revision(&self) -> Option<i64> {
        self.0.values().map(|read| read.revision).min()
    }
}

/// A change of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    Put { value: Bytes, lease: i64 },
    Delete,
}

/// The keys that will be written.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteSet(pub(super) BTreeMap<Bytes, Write>);

impl WriteSet {
    /// Returns the value that the transaction has written: `None` if it has not written the key,
    /// `Some(None)` if it has deleted it.
    pub(super) fn value(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.0.get(key).map(|write| match write {
            Write::Put { value, .. } => Some(value.clone()),
            Write::Delete => None,
        })
    }

    /// Returns the conditions that no key has changed after a revision.
    pub(super) fn unchanged_since(&self, revision: i64) -> impl Iterator<Item = Compare> {
        let keys = self.0.keys();
        keys.map(move |key| Compare::mod_revision(key).less_than(revision + 1))
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = Op> {
        self.0.iter().map(|(key, write)| match write {
            Write::Put { value, lease } => Put::new(key, value.clone()).lease(*lease).into(),
            Write::Delete => Delete::key(key).into(),
        })
    }
}
