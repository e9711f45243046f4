//! One version of one key, as held in memory.
//!
//! Plain data: the slots hold it, the rules read it, the backend never sees it.
//! What is stored is the canonical `KeyValue` that [`Version::record`] makes.

use bytes::Bytes;
use portunus_proto::mvccpb::KeyValue;

use crate::revision::{RecordKey, Revision};

/// Where the value of a version is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// In memory. Always so until the backend has committed it.
    Resident(Bytes),
    /// Only in the backend, under the version's revision.
    InBackend,
    /// Nowhere: this version is a delete.
    Tombstone,
}

impl Value {
    /// Bytes of value this holds in memory.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        match self {
            Self::Resident(value) => value.len(),
            Self::InBackend | Self::Tombstone => 0,
        }
    }
}

/// One version of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The change that made it.
    pub revision: Revision,
    /// Main revision at which the current life of the key began; 0 for a tombstone.
    pub create_revision: i64,
    /// Puts since creation; 0 for a tombstone.
    pub version: i64,
    /// The lease the key is attached to; 0 means none.
    pub lease: i64,
    /// The value, or that there is none.
    pub value: Value,
}

impl Version {
    /// The version a delete leaves behind.
    #[must_use]
    pub const fn tombstone(revision: Revision) -> Self {
        Self {
            revision,
            create_revision: 0,
            version: 0,
            lease: 0,
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

    /// The message with the given value.
    #[must_use]
    pub fn with_value(&self, key: &Bytes, value: Bytes) -> KeyValue {
        KeyValue {
            key: key.clone(),
            create_revision: self.create_revision,
            mod_revision: self.revision.main,
            version: self.version,
            value,
            lease: self.lease,
        }
    }

    /// The message without its value.
    #[must_use]
    pub fn without_value(&self, key: &Bytes) -> KeyValue {
        self.with_value(key, Bytes::new())
    }

    /// What is stored for this version. A tombstone's record holds only the key.
    #[must_use]
    pub fn record(&self, key: &Bytes) -> KeyValue {
        match &self.value {
            Value::Resident(value) => self.with_value(key, value.clone()),
            Value::InBackend => self.without_value(key),
            Value::Tombstone => KeyValue {
                key: key.clone(),
                ..KeyValue::default()
            },
        }
    }
}
