//! The summary of a snapshot, with the same fields and values as `etcdutl snapshot status` of etcd
//! 3.6 and later, so that scripts work with both.

use std::collections::HashSet;

use crate::check::{Problem, check};
use crate::page::ReadError;
use crate::reader::Reader;
use crate::snapshot::hash;

/// Summary of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// CRC-32C over all buckets, nothing left out.
    pub hash: u32,
    /// The highest main revision; 0 if the store is empty.
    pub revision: i64,
    /// User keys that exist at that revision. etcdutl 3.5 and earlier show [`Status::entries`]
    /// under this name instead.
    pub total_keys: u64,
    /// Bytes of the database's pages, without the digest.
    pub total_bytes: u64,
    /// The storage version recorded by etcd 3.6 and later, else empty.
    pub version: String,
    /// Entries in all buckets together.
    pub entries: u64,
}

/// An error of summarising a damaged snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The consistency check found problems.
    #[error("the snapshot is damaged in {total} places; the first is given below")]
    Damaged {
        /// Number of problems.
        total: u64,
        /// The first problem.
        #[source]
        first: Problem,
    },
    /// The snapshot cannot be read.
    #[error("cannot read the snapshot")]
    Read(#[from] ReadError),
    /// A key of the `key` bucket is not a revision.
    #[error("the key {:?} in bucket \"key\" is no revision", key.escape_ascii().to_string())]
    Revision {
        /// The key.
        key: Vec<u8>,
    },
    /// A value of the `key` bucket is not a `KeyValue` message.
    #[error("the value at revision {main}.{sub} is no KeyValue message")]
    KeyValue {
        /// Main revision.
        main: i64,
        /// Sub revision.
        sub: i64,
    },
}

/// Checks the file and summarises it.
pub fn status(reader: &Reader) -> Result<Status, StatusError> {
    let report = check(reader);
    if let Some(first) = report.problems.first() {
        return Err(StatusError::Damaged {
            total: report.problems_total,
            first: *first,
        });
    }

    let mut revision = 0;
    let mut live_keys: HashSet<&[u8]> = HashSet::new();
    if let Some(bucket) = reader.bucket(b"key")? {
        for pair in bucket.iter() {
            let (stored_key, value) = pair?;
            let stored = StoredRevision::decode(stored_key).ok_or_else(|| {
                let key = stored_key.to_vec();
                StatusError::Revision { key }
            })?;
            revision = stored.main;
            let key = user_key(value).ok_or(StatusError::KeyValue {
                main: stored.main,
                sub: stored.sub,
            })?;
            if stored.is_tombstone {
                live_keys.remove(key);
            } else {
                live_keys.insert(key);
            }
        }
    }

    Ok(Status {
        hash: hash(reader, |_, _| false)?,
        revision,
        total_keys: live_keys.len() as u64,
        total_bytes: reader.database_bytes(),
        version: storage_version(reader)?,
        entries: report.entries,
    })
}

/// A key of the `key` bucket: main revision, `_`, sub revision, and `t` for a deletion.
struct StoredRevision {
    main: i64,
    sub: i64,
    is_tombstone: bool,
}

impl StoredRevision {
    fn decode(key: &[u8]) -> Option<Self> {
        let (main, rest) = key.split_first_chunk::<8>()?;
        let (separator, rest) = rest.split_first()?;
        let (sub, mark) = rest.split_first_chunk::<8>()?;
        let main = i64::from_be_bytes(*main);
        let sub = i64::from_be_bytes(*sub);
        (*separator == b'_' && mark.len() <= 1 && main >= 0 && sub >= 0).then_some(Self {
            main,
            sub,
            is_tombstone: mark == b"t",
        })
    }
}

fn storage_version(reader: &Reader) -> Result<String, ReadError> {
    let Some(meta) = reader.bucket(b"meta")? else {
        return Ok(String::new());
    };
    let text = meta
        .get(b"storageVersion")?
        .and_then(|value| str::from_utf8(value).ok())
        .unwrap_or_default();
    // Only a version of three numbers is shown; a pre-release suffix may follow.
    let numbers = text.split(['-', '+']).next().unwrap_or_default();
    let shown = numbers.split('.').count() == 3
        && numbers
            .split('.')
            .all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    Ok(if shown {
        text.to_owned()
    } else {
        String::new()
    })
}

/// Returns field 1 of a protobuf message, empty if absent; `None` if the message is malformed.
/// Other fields are skipped, so this needs no generated types.
fn user_key(mut message: &[u8]) -> Option<&[u8]> {
    const KEY_FIELD: u64 = 1;
    let mut key: &[u8] = &[];
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let (field, wire_type) = (tag >> 3, tag & 7);
        match wire_type {
            0 => {
                varint(&mut message)?;
            }
            1 => message = message.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                if field == KEY_FIELD {
                    key = bytes;
                }
            }
            5 => message = message.get(4..)?,
            _ => return None,
        }
        if field == 0 {
            return None;
        }
    }
    Some(key)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_key_is_field_1_at_any_position() {
        assert_eq!(user_key(b""), Some(&b""[..]));
        assert_eq!(user_key(b"\x0a\x01k"), Some(&b"k"[..]));
        assert_eq!(
            user_key(b"\x10\x96\x01\x0a\x01k\x2a\x02vv"),
            Some(&b"k"[..])
        );
        for malformed in [&b"\x0a"[..], b"\x0a\x02k", b"\x00\x00", b"\x0b", b"\x80"] {
            assert_eq!(user_key(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn stored_revision_is_17_or_18_bytes_with_an_underscore() {
        let put = StoredRevision::decode(b"\0\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\x02").unwrap();
        assert_eq!((put.main, put.sub, put.is_tombstone), (5, 2, false));
        let deletion = StoredRevision::decode(b"\0\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\x02t").unwrap();
        assert!(deletion.is_tombstone);
        for wrong in [
            &b"\0\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0"[..],
            b"\0\0\0\0\0\0\0\x05-\0\0\0\0\0\0\0\x02",
            b"\0\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\x02tt",
            b"\xff\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\x02",
        ] {
            assert!(StoredRevision::decode(wrong).is_none(), "{wrong:?}");
        }
    }
}
