//! The keys a watcher watches.

use bytes::Bytes;

/// The end of a range. A bounded end sorts before the unbounded one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeEnd {
    /// First key that is outside.
    Before(Bytes),
    /// Every key from the start on.
    Unbounded,
}

impl RangeEnd {
    /// Whether `key` lies before this end.
    #[must_use]
    pub fn is_after(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => key < end.as_ref(),
            Self::Unbounded => true,
        }
    }
}

/// One key or a non-empty half-open range of keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// Exactly this key.
    Key(Bytes),
    /// Every key from `start` up to `end`.
    Range {
        /// First key inside.
        start: Bytes,
        /// End of the range.
        end: RangeEnd,
    },
}

impl KeyRange {
    /// Interprets the two request fields as etcd does: an empty key is the
    /// smallest key, an empty end means one key, an end of one zero byte means
    /// no end. `None` if the range can hold no key.
    #[must_use]
    pub fn from_request(key: Bytes, range_end: Bytes) -> Option<Self> {
        let start = if key.is_empty() {
            Bytes::from_static(b"\0")
        } else {
            key
        };
        if range_end.is_empty() {
            return Some(Self::Key(start));
        }
        if range_end.as_ref() == b"\0" {
            return Some(Self::Range {
                start,
                end: RangeEnd::Unbounded,
            });
        }
        (start < range_end).then_some(Self::Range {
            start,
            end: RangeEnd::Before(range_end),
        })
    }

    /// Whether `key` is inside.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::Key(only) => only.as_ref() == key,
            Self::Range { start, end } => start.as_ref() <= key && end.is_after(key),
        }
    }
}
