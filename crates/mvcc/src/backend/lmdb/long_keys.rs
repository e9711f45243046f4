//! Entries whose key is longer than LMDB allows.
//!
//! Only names of users and roles can be that long. Such an entry is stored in a
//! separate database under bucket and digest, with the whole key in front of
//! the value. Scans merge it at its place in key order, so callers see one
//! ordered bucket.

use bytes::{BufMut, Bytes};
use sha2::{Digest, Sha256};

use crate::backend::Bucket;

/// LMDB's limit on the length of a key.
pub(super) const KEY_BYTES_MAX: usize = 511;

const LENGTH_BYTES: usize = 4;

/// Returns the database key of a long key's entry.
pub(super) fn place(bucket: Bucket, key: &[u8]) -> Vec<u8> {
    let mut place = vec![bucket as u8];
    place.extend_from_slice(&Sha256::digest(key));
    place
}

/// Encodes key and value of a long key's entry.
pub(super) fn pack(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(LENGTH_BYTES + key.len() + value.len());
    packed.put_u32(key.len() as u32);
    packed.put_slice(key);
    packed.put_slice(value);
    packed
}

/// Decodes key and value; `None` if [`pack`] did not write them.
pub(super) fn unpack(packed: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = packed.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// An entry taken out of the database, to be merged into a scan.
pub(super) struct LongEntry {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

impl LongEntry {
    pub(super) fn unpack(packed: &[u8]) -> Option<Self> {
        let (key, value) = unpack(packed)?;
        Some(Self {
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(value),
        })
    }
}
