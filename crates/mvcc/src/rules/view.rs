//! How rules see state.

use std::ops::ControlFlow;

use bytes::Bytes;
use portunus_proto::mvccpb::KeyValue;

use crate::{
    error::ReadError,
    rules::range::KeyRange,
    version::{Value, Version},
};

/// Keys and their versions, as the store holds them.
pub trait KeyView {
    /// The newest revision reads may name.
    fn revision(&self) -> i64;

    /// Reads below this are refused; −1 if nothing was ever compacted.
    fn compact_revision(&self) -> i64;

    /// Calls for every key of the range that exists at the revision, in key
    /// order, until told to stop.
    fn visit(
        &self,
        range: &KeyRange,
        revision: i64,
        visit: impl FnMut(Entry<'_>) -> Result<ControlFlow<()>, ReadError>,
    ) -> Result<(), ReadError>;

    /// How many keys of the range exist at the revision.
    fn count(&self, range: &KeyRange, revision: i64) -> i64;

    /// One key at the newest revision.
    fn get(&self, key: &Bytes, with_value: bool) -> Result<Option<KeyValue>, ReadError> {
        let mut found = None;
        self.visit(&KeyRange::single(key.clone()), self.revision(), |entry| {
            found = Some(entry.key_value(with_value)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

/// Fetches values that left memory.
pub trait ValueSource {
    /// The value stored for a version.
    fn load(&self, version: &Version) -> Result<Bytes, ReadError>;
}

/// A key that exists, at one version.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a Bytes,
    /// The version; never a tombstone.
    pub version: &'a Version,
    /// Where its value comes from if it is not resident.
    pub values: &'a dyn ValueSource,
}

impl Entry<'_> {
    /// The value, fetched if need be.
    pub fn value(&self) -> Result<Bytes, ReadError> {
        match &self.version.value {
            Value::Resident(value) => Ok(value.clone()),
            Value::InBackend => self.values.load(self.version),
            Value::Tombstone => Ok(Bytes::new()),
        }
    }

    /// The message, with its value only if asked for.
    pub fn key_value(&self, with_value: bool) -> Result<KeyValue, ReadError> {
        let value = if with_value {
            self.value()?
        } else {
            Bytes::new()
        };
        Ok(self.version.with_value(self.key, value))
    }
}
