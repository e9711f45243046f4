//! The state that rules read.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
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

    /// Calls `visit` for every key of the range that exists at the revision, in
    /// key order, until it breaks.
    fn visit(
        &self,
        range: &KeyRange,
        revision: i64,
        visit: impl FnMut(Entry<'_>) -> Result<ControlFlow<()>, ReadError>,
    ) -> Result<(), ReadError>;

    /// Counts the keys of the range that exist at the revision.
    fn count(&self, range: &KeyRange, revision: i64) -> i64;

    /// Returns one key at the newest revision.
    fn get(&self, key: &Bytes, with_value: bool) -> Result<Option<KeyValue>, ReadError> {
        let mut found = None;
        self.visit(&KeyRange::single(key.clone()), self.revision(), |entry| {
            found = Some(entry.key_value(with_value, &mut Copies::default())?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

/// Loads values that are not resident.
pub trait ValueSource {
    /// Loads the value of a version.
    fn load(&self, version: &Version) -> Result<Bytes, ReadError>;
}

/// A key that exists, at one version.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The version; never a tombstone.
    pub version: &'a Version,
    /// Source of its value if it is not resident.
    pub values: &'a dyn ValueSource,
}

impl Entry<'_> {
    /// Builds the message, with the value only if `with_value` is set.
    pub fn key_value(&self, with_value: bool, copies: &mut Copies) -> Result<KeyValue, ReadError> {
        let value = match &self.version.value {
            Value::Resident(value) if with_value => {
                copies.make_room(self.key.len() + value.copied_bytes());
                value.to_bytes(copies)
            }
            Value::InBackend if with_value => self.values.load(self.version)?,
            _ => Bytes::new(),
        };
        Ok(self.version.with_value(copies.copy(self.key), value))
    }
}

/// Copies keys and small values of one answer into few buffers: an allocation for each would cost
/// more than the copy.
#[derive(Debug, Default)]
pub struct Copies {
    buffer: BytesMut,
    /// Capacity of the newest buffer.
    buffer_bytes: usize,
}

impl Copies {
    /// Buffers double up to this, so that a single key takes only what it needs.
    const BUFFER_BYTES_MAX: usize = 64 * 1024;

    /// Copies bytes into a buffer of this answer.
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        self.make_room(bytes.len());
        self.buffer.extend_from_slice(bytes);
        self.buffer.split().freeze()
    }

    /// Ensures that the next `bytes` bytes fit in the current buffer.
    pub fn make_room(&mut self, bytes: usize) {
        if self.buffer.capacity() < bytes {
            let doubled = (self.buffer_bytes * 2).min(Self::BUFFER_BYTES_MAX);
            self.buffer_bytes = doubled.max(bytes);
            self.buffer = BytesMut::with_capacity(self.buffer_bytes);
        }
    }
}
