//! One version of one key, as held in memory.
//!
//! Plain data: slots hold it, rules read it. The backend stores the canonical `KeyValue` that
//! [`Version::with_value`] builds.

use bytes::Bytes;
use triomphe::ThinArc;

use portunus_proto::{LeaseId, mvccpb::KeyValue};

use crate::{
    revision::{RecordKey, Revision},
    rules::Copies,
};

/// Where the value of a version is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// In memory. Uncommitted values are always resident.
    Resident(ResidentValue),
    /// Only in the backend, under the version's revision.
    InBackend,
    /// No value: this version is a delete.
    Tombstone,
}

/// A value in memory: one pointer, and one allocation that holds nothing else.
/// A slice of the request would save a copy, but keep the whole request
/// allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidentValue(ThinArc<(), u8>);

impl AsRef<[u8]> for ResidentValue {
    fn as_ref(&self) -> &[u8] {
        &self.0.slice
    }
}

impl ResidentValue {
    /// Sharing costs an allocation, so only values above this are shared.
    const COPIED_BYTES_MAX: usize = 512;

    /// Returns the value for a message: copied if it is small, else shared.
    #[must_use]
    pub fn to_bytes(&self, copies: &mut Copies) -> Bytes {
        match self.copied_bytes() {
            0 if !self.as_ref().is_empty() => Bytes::from_owner(self.clone()),
            _ => copies.copy(self.as_ref()),
        }
    }

    /// Bytes that [`Self::to_bytes`] will copy.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        match self.as_ref().len() {
            length @ ..=Self::COPIED_BYTES_MAX => length,
            _ => 0,
        }
    }
}

impl Value {
    /// Builds a value in memory.
    #[must_use]
    pub fn resident(value: &[u8]) -> Self {
        Self::Resident(ResidentValue(ThinArc::from_header_and_slice((), value)))
    }

    /// Bytes of the value held in memory.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        match self {
            Self::Resident(value) => value.as_ref().len(),
            Self::InBackend | Self::Tombstone => 0,
        }
    }
}

/// One version of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Revision of the change that made the version.
    pub revision: Revision,
    /// Main revision at which the current life of the key began; 0 for a tombstone.
    pub create_revision: i64,
    /// Puts since creation; 0 for a tombstone.
    pub version: i64,
    /// The lease the key is attached to, or [`LeaseId::NONE`].
    pub lease: LeaseId,
    /// The value, or the tombstone mark.
    pub value: Value,
}

impl Version {
    /// The version that a delete adds.
    #[must_use]
    pub const fn tombstone(revision: Revision) -> Self {
        Self {
            revision,
            create_revision: 0,
            version: 0,
            lease: LeaseId::NONE,
            value: Value::Tombstone,
        }
    }

    /// Whether the key does not exist at this version.
    #[must_use]
    pub const fn is_tombstone(&self) -> bool {
        matches!(self.value, Value::Tombstone)
    }

    /// The key of its record in the backend.
    #[must_use]
    pub const fn record_key(&self) -> RecordKey {
        RecordKey {
            revision: self.revision,
            tombstone: self.is_tombstone(),
        }
    }

    /// Builds the message with the given value.
    #[must_use]
    pub fn with_value(&self, key: Bytes, value: Bytes) -> KeyValue {
        KeyValue {
            key,
            create_revision: self.create_revision,
            mod_revision: self.revision.main,
            version: self.version,
            value,
            lease: self.lease.0,
        }
    }
}
