//! Entries whose key is longer than LMDB allows.
//!
//! Only names of users and roles can be that long. Such an entry lives in a
//! database of its own under bucket and digest, with the whole key in front of
//! the value; scans merge it back at its place, so nobody above can tell.

use bytes::{BufMut, Bytes};
use sha2::{Digest, Sha256};

use crate::backend::Bucket;

/// LMDB's limit on the length of a key.
pub(super) const KEY_BYTES_MAX: usize = 511;

const LENGTH_BYTES: usize = 4;

/// Where the entry of a long key lives.
pub(super) fn place(bucket: Bucket, key: &[u8]) -> Vec<u8> {
    let mut place = vec![bucket as u8];
    place.extend_from_slice(&Sha256::digest(key));
    place
}

/// What is stored there.
pub(super) fn pack(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(LENGTH_BYTES + key.len() + value.len());
    packed.put_u32(key.len() as u32);
    packed.put_slice(key);
    packed.put_slice(value);
    packed
}

/// Key and value of what is stored; `None` if it was not written by [`pack`].
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
