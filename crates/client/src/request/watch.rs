//! Watches of a key or a range.

use bytes::Bytes;
use portunus_proto::etcdserverpb::WatchCreateRequest;
use portunus_proto::etcdserverpb::watch_create_request::FilterType;

use crate::key_range::{END_OF_KEYS, prefix_range};

/// A watch of a key or a range; converts into a [`WatchCreateRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Watch(WatchCreateRequest);

impl Watch {
    fn of(key: Bytes, range_end: Bytes) -> Self {
        Self(WatchCreateRequest {
            key,
            range_end,
            ..WatchCreateRequest::default()
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

    /// Begins with the events of this revision; 0 for those after the newest one.
    pub fn from_revision(mut self, revision: i64) -> Self {
        self.0.start_revision = revision;
        self
    }

    /// Adds the pair before the change to each event.
    pub fn with_previous(mut self) -> Self {
        self.0.prev_kv = true;
        self
    }

    /// Lets the server tell its revision from time to time while there are no events.
    pub fn with_progress(mut self) -> Self {
        self.0.progress_notify = true;
        self
    }

    /// Lets the server divide large responses.
    pub fn in_fragments(mut self) -> Self {
        self.0.fragment = true;
        self
    }

    /// Leaves out the events of writes.
    pub fn without_puts(mut self) -> Self {
        self.0.filters.push(FilterType::Noput.into());
        self
    }

    /// Leaves out the events of deletions.
    pub fn without_deletes(mut self) -> Self {
        self.0.filters.push(FilterType::Nodelete.into());
        self
    }
}

impl From<Watch> for WatchCreateRequest {
    fn from(watch: Watch) -> Self {
        watch.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_set_their_fields() {
        let watch = Watch::prefix("a/")
            .from_revision(4)
            .with_previous()
            .with_progress()
            .in_fragments()
            .without_puts();
        let request = WatchCreateRequest::from(watch);
        assert_eq!(
            (&request.key[..], &request.range_end[..]),
            (&b"a/"[..], &b"a0"[..])
        );
        assert_eq!(request.start_revision, 4);
        assert!(request.prev_kv && request.progress_notify && request.fragment);
        assert_eq!(request.filters, [FilterType::Noput as i32]);
    }
}
