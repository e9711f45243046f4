//! Reads of a key or a range.

use bytes::Bytes;
use portunus_proto::etcdserverpb::RangeRequest;
use portunus_proto::etcdserverpb::range_request::{SortOrder, SortTarget};

use crate::key_range::{END_OF_KEYS, prefix_range};

/// A read of a key or a range; converts into a [`RangeRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Range(RangeRequest);

impl Range {
    fn of(key: Bytes, range_end: Bytes) -> Self {
        Self(RangeRequest {
            key,
            range_end,
            ..RangeRequest::default()
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

    /// All keys.
    pub fn all() -> Self {
        Self::prefix("")
    }

    /// Returns `keys_max` keys at most; 0 for all.
    pub fn limit(mut self, keys_max: i64) -> Self {
        self.0.limit = keys_max;
        self
    }

    /// Reads at a revision; 0 for the newest.
    pub fn at_revision(mut self, revision: i64) -> Self {
        self.0.revision = revision;
        self
    }

    /// Reads what the member that answers has, which may be old, without asking the leader.
    pub fn serializable(mut self) -> Self {
        self.0.serializable = true;
        self
    }

    /// Returns keys without their values.
    pub fn keys_only(mut self) -> Self {
        self.0.keys_only = true;
        self
    }

    /// Returns the number of keys only.
    pub fn count_only(mut self) -> Self {
        self.0.count_only = true;
        self
    }

    /// Sorts, then applies the limit.
    pub fn sorted_by(mut self, target: SortTarget, descending: bool) -> Self {
        self.0.sort_target = target.into();
        self.0.sort_order = match descending {
            true => SortOrder::Descend.into(),
            false => SortOrder::Ascend.into(),
        };
        self
    }

    /// Sorts by the revision of the last change.
    pub fn sorted_by_mod_revision(self, descending: bool) -> Self {
        self.sorted_by(SortTarget::Mod, descending)
    }

    /// Returns the key of the range that was created first, as clientv3's `WithFirstCreate`.
    pub fn first_created(self) -> Self {
        self.sorted_by(SortTarget::Create, false).limit(1)
    }

    /// Returns the key of the range that was created last, as clientv3's `WithLastCreate`.
    pub fn last_created(self) -> Self {
        self.sorted_by(SortTarget::Create, true).limit(1)
    }

    /// Returns keys that were changed between these revisions, including them; 0 for no bound.
    pub fn mod_revisions(mut self, min: i64, max: i64) -> Self {
        (self.0.min_mod_revision, self.0.max_mod_revision) = (min, max);
        self
    }

    /// Returns keys that were created between these revisions, including them; 0 for no bound.
    pub fn create_revisions(mut self, min: i64, max: i64) -> Self {
        (self.0.min_create_revision, self.0.max_create_revision) = (min, max);
        self
    }
}

impl From<Range> for RangeRequest {
    fn from(range: Range) -> Self {
        range.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_bounds_of_clientv3() {
        for (range, key, range_end) in [
            (Range::key("a"), "a", ""),
            (Range::prefix("a/"), "a/", "a0"),
            (Range::prefix(""), "\0", "\0"),
            (Range::all(), "\0", "\0"),
            (Range::from_key("a"), "a", "\0"),
            (Range::between("a", "c"), "a", "c"),
        ] {
            let request = RangeRequest::from(range);
            assert_eq!(
                (&request.key[..], &request.range_end[..]),
                (key.as_bytes(), range_end.as_bytes())
            );
        }
    }

    #[test]
    fn options_set_their_fields() {
        let range = Range::prefix("a")
            .last_created()
            .create_revisions(2, 7)
            .mod_revisions(3, 8)
            .at_revision(9)
            .serializable()
            .keys_only();
        let request = RangeRequest::from(range);
        assert_eq!(request.sort_target(), SortTarget::Create);
        assert_eq!(request.sort_order(), SortOrder::Descend);
        assert_eq!((request.limit, request.revision), (1, 9));
        assert_eq!(
            (request.min_create_revision, request.max_create_revision),
            (2, 7)
        );
        assert_eq!((request.min_mod_revision, request.max_mod_revision), (3, 8));
        assert!(request.serializable && request.keys_only && !request.count_only);
    }
}
