//! Writes and deletions of keys.

use bytes::Bytes;
use portunus_proto::etcdserverpb::{DeleteRangeRequest, PutRequest};

use crate::key_range::{END_OF_KEYS, prefix_range};

/// A write of a key; converts into a [`PutRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Put(PutRequest);

impl Put {
    /// Writes a key. Without a lease, the key loses the one it has.
    pub fn new(key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Self {
        Self(PutRequest {
            key: Bytes::copy_from_slice(key.as_ref()),
            value: value.into(),
            ..PutRequest::default()
        })
    }

    /// Attaches the key to a lease: it is deleted with it.
    pub fn lease(mut self, lease: i64) -> Self {
        self.0.lease = lease;
        self
    }

    /// Returns the pair before the write.
    pub fn return_previous(mut self) -> Self {
        self.0.prev_kv = true;
        self
    }

    /// Keeps the value of the key, which must exist; give an empty value.
    pub fn keep_value(mut self) -> Self {
        self.0.ignore_value = true;
        self
    }

    /// Keeps the lease of the key, which must exist.
    pub fn keep_lease(mut self) -> Self {
        self.0.ignore_lease = true;
        self
    }
}

impl From<Put> for PutRequest {
    fn from(put: Put) -> Self {
        put.0
    }
}

/// A deletion of a key or a range; converts into a [`DeleteRangeRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Delete(DeleteRangeRequest);

impl Delete {
    fn of(key: Bytes, range_end: Bytes) -> Self {
        Self(DeleteRangeRequest {
            key,
            range_end,
            prev_kv: false,
        })
    }

    /// One key.
    pub fn key(key: impl AsRef<[u8]>) -> Self {
        Self::of(Bytes::copy_from_slice(key.as_ref()), Bytes::new())
    }

    /// All keys with a prefix; all keys if it is empty.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let (key, range_end) = prefix_range(prefix.as_ref());
        Self::of(key, range_end)
    }

    /// The keys from `start` to the last one before `end`.
    pub fn between(start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Self {
        let (start, end) = (start.as_ref(), end.as_ref());
        Self::of(Bytes::copy_from_slice(start), Bytes::copy_from_slice(end))
    }

    /// All keys from `start` on.
    pub fn from_key(start: impl AsRef<[u8]>) -> Self {
        Self::between(start, END_OF_KEYS)
    }

    /// Returns the deleted pairs.
    pub fn return_previous(mut self) -> Self {
        self.0.prev_kv = true;
        self
    }
}

impl From<Delete> for DeleteRangeRequest {
    fn from(delete: Delete) -> Self {
        delete.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_set_their_fields() {
        let put = PutRequest::from(Put::new("a", "b").lease(7).return_previous());
        assert_eq!((&put.key[..], &put.value[..]), (&b"a"[..], &b"b"[..]));
        assert_eq!((put.lease, put.prev_kv), (7, true));
        let put = PutRequest::from(Put::new("a", "").keep_value().keep_lease());
        assert!(put.ignore_value && put.ignore_lease && !put.prev_kv);
        let delete = DeleteRangeRequest::from(Delete::prefix("a/").return_previous());
        assert_eq!(
            (&delete.key[..], &delete.range_end[..]),
            (&b"a/"[..], &b"a0"[..])
        );
        assert!(delete.prev_kv);
    }
}
