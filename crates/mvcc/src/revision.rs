//! Revisions and their byte form in the `key` bucket.
//!
//! The bucket is ordered by these bytes, and hashes are computed over them, so
//! they equal etcd's byte for byte: big-endian main, `_`, big-endian sub, and a
//! trailing `t` if the record is a tombstone.

/// Bytes of a revision in the `key` bucket.
pub const REVISION_BYTES: usize = 17;

/// Bytes of a tombstone's revision in the `key` bucket.
pub const TOMBSTONE_BYTES: usize = REVISION_BYTES + 1;

const SEPARATOR: u8 = b'_';
const TOMBSTONE_MARK: u8 = b't';

/// Position of one change in the history of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision {
    /// Grows by one with every transaction that changed something.
    pub main: i64,
    /// Position of the change inside its transaction, from 0.
    pub sub: i64,
}

impl Revision {
    /// The first change of a transaction.
    #[must_use]
    pub const fn first_of(main: i64) -> Self {
        Self { main, sub: 0 }
    }
}

/// The key of a record in the `key` bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// Revision of the change.
    pub revision: Revision,
    /// Whether the change was a delete.
    pub tombstone: bool,
}

impl RecordKey {
    /// The key of a put.
    #[must_use]
    pub const fn put(revision: Revision) -> Self {
        Self {
            revision,
            tombstone: false,
        }
    }

    /// The key of a delete.
    #[must_use]
    pub const fn tombstone(revision: Revision) -> Self {
        Self {
            revision,
            tombstone: true,
        }
    }

    /// Encodes the key as it is stored.
    #[must_use]
    pub fn encode(self) -> RecordKeyBytes {
        let mut bytes = [0; TOMBSTONE_BYTES];
        bytes[..8].copy_from_slice(&self.revision.main.to_be_bytes());
        bytes[8] = SEPARATOR;
        bytes[9..REVISION_BYTES].copy_from_slice(&self.revision.sub.to_be_bytes());
        bytes[REVISION_BYTES] = TOMBSTONE_MARK;
        RecordKeyBytes {
            bytes,
            tombstone: self.tombstone,
        }
    }

    /// Decodes stored bytes; `None` if they are not a record's key.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (revision, rest) = bytes.split_first_chunk::<REVISION_BYTES>()?;
        let tombstone = match rest {
            [] => false,
            [TOMBSTONE_MARK] => true,
            _ => return None,
        };
        let (main, rest) = revision.split_first_chunk::<8>()?;
        let (separator, sub) = rest.split_first()?;
        let sub = sub.first_chunk::<8>()?;
        (*separator == SEPARATOR).then(|| Self {
            revision: Revision {
                main: i64::from_be_bytes(*main),
                sub: i64::from_be_bytes(*sub),
            },
            tombstone,
        })
    }
}

/// A record's key as stored, without an allocation.
#[derive(Debug, Clone, Copy)]
pub struct RecordKeyBytes {
    bytes: [u8; TOMBSTONE_BYTES],
    tombstone: bool,
}

impl std::ops::Deref for RecordKeyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.tombstone {
            &self.bytes
        } else {
            &self.bytes[..REVISION_BYTES]
        }
    }
}

/// The value of the compaction marks in the `meta` bucket: a revision with sub 0.
#[must_use]
pub fn encode_mark(main: i64) -> RecordKeyBytes {
    RecordKey::put(Revision::first_of(main)).encode()
}

/// Decodes a compaction mark of the `meta` bucket.
#[must_use]
pub fn decode_mark(bytes: &[u8]) -> Option<i64> {
    RecordKey::decode(bytes).map(|key| key.revision.main)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_key_encodes_to_etcd_bytes() {
        let revision = Revision { main: 258, sub: 3 };
        let put = RecordKey::put(revision);
        assert_eq!(
            &*put.encode(),
            &[0, 0, 0, 0, 0, 0, 1, 2, b'_', 0, 0, 0, 0, 0, 0, 0, 3]
        );
        let tombstone = RecordKey::tombstone(revision);
        assert_eq!(tombstone.encode().len(), TOMBSTONE_BYTES);
        assert_eq!(tombstone.encode().last(), Some(&b't'));
        assert_eq!(RecordKey::decode(&put.encode()), Some(put));
        assert_eq!(RecordKey::decode(&tombstone.encode()), Some(tombstone));
    }

    #[test]
    fn encoded_keys_sort_in_revision_order() {
        let keys = [
            RecordKey::put(Revision { main: 1, sub: 9 }),
            RecordKey::put(Revision { main: 2, sub: 0 }),
            RecordKey::tombstone(Revision { main: 2, sub: 0 }),
            RecordKey::put(Revision { main: 2, sub: 1 }),
            RecordKey::put(Revision { main: 256, sub: 0 }),
        ];
        assert!(keys.is_sorted());
        assert!(keys.is_sorted_by(|a, b| *a.encode() < *b.encode()));
    }

    #[test]
    fn decode_rejects_bytes_that_are_no_record_key() {
        let good = RecordKey::put(Revision::first_of(7)).encode();
        let mut other_separator = good.to_vec();
        other_separator[8] = b'-';
        let mut other_mark = good.to_vec();
        other_mark.push(b'x');
        for bytes in [b"".as_slice(), &good[..16], &other_separator, &other_mark] {
            assert_eq!(RecordKey::decode(bytes), None, "{bytes:?}");
        }
    }
}
