//! The end of a range of keys, as etcd's API expresses it.

use bytes::{BufMut, Bytes, BytesMut};

/// The end of a range that has no end; as a key, the first one of all.
pub(crate) const END_OF_KEYS: &[u8] = &[0];

/// Returns the end of the range of all keys with a prefix, as clientv3's `GetPrefixRangeEnd`.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|byte| *byte < u8::MAX) else {
        return Bytes::from_static(END_OF_KEYS);
    };
    let mut end = BytesMut::with_capacity(last + 1);
    for (at, byte) in prefix.iter().take(last + 1).enumerate() {
        end.put_u8(if at == last { byte + 1 } else { *byte });
    }
    end.freeze()
}

/// Returns the first key after a key.
pub(crate) fn key_after(key: &[u8]) -> Bytes {
    let mut after = BytesMut::with_capacity(key.len() + 1);
    after.put_slice(key);
    after.put_u8(0);
    after.freeze()
}

/// Returns the start and the end of the range of all keys with a prefix; all keys for an empty one.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bytes, Bytes) {
    let start = if prefix.is_empty() {
        END_OF_KEYS
    } else {
        prefix
    };
    (Bytes::copy_from_slice(start), prefix_end(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_next_key_without_the_prefix() {
        for (prefix, end) in [
            (&b"/registry/"[..], &b"/registry0"[..]),
            (b"a\xff", b"b"),
            (b"a\xfe\xff", b"a\xff"),
            (b"\xff\xff", END_OF_KEYS),
            (b"", END_OF_KEYS),
        ] {
            assert_eq!(prefix_end(prefix), end, "{prefix:?}");
        }
    }

    #[test]
    fn empty_prefix_is_the_range_of_all_keys() {
        let (start, end) = prefix_range(b"");
        assert_eq!((&start[..], &end[..]), (&b"\0"[..], &b"\0"[..]));
        assert_eq!(key_after(b"a"), &b"a\0"[..]);
    }
}
