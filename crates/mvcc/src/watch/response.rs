//! One watch response, encoded without copying events.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use portunus_proto::etcdserverpb::{ResponseHeader, WatchResponse};
use prost::Message;

use super::delivery::Delivery;

/// The watch id of responses that belong to no single watch: refusals and
/// answers to progress requests.
pub const NO_WATCH_ID: i64 = -1;

/// A response of the watch service, without the header fields that the server
/// adds (cluster, member, term).
pub struct Response {
    /// Id of the watch on its stream, or [`NO_WATCH_ID`].
    pub watch_id: i64,
    /// Revision for the header. Zero when the watch fell behind compaction.
    pub revision: i64,
    /// Answer to a create request.
    pub created: bool,
    /// The watch ended; with `created`, it was refused.
    pub canceled: bool,
    /// Set if the watch ended because history before this revision is compacted.
    pub compact_revision: i64,
    /// Reason of the cancellation or refusal; empty if the client cancelled the
    /// watch.
    pub cancel_reason: Cow<'static, str>,
    /// The next response continues this one.
    pub fragment: bool,
    pub(super) events: Option<Events>,
}

/// A part of a delivery, for one watcher.
pub(super) struct Events {
    pub(super) delivery: Delivery,
    pub(super) with_prev: bool,
    pub(super) part: Range<usize>,
}

impl Events {
    pub(super) fn frames(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.part
            .clone()
            .map(|index| self.delivery.frame(index, self.with_prev))
    }
}

impl Response {
    pub(super) fn empty(watch_id: i64, revision: i64) -> Self {
        Self {
            watch_id,
            revision,
            created: false,
            canceled: false,
            compact_revision: 0,
            cancel_reason: Cow::Borrowed(""),
            fragment: false,
            events: None,
        }
    }

    pub(super) fn created(watch_id: i64, revision: i64) -> Self {
        Self {
            created: true,
            ..Self::empty(watch_id, revision)
        }
    }

    pub(super) fn refused(revision: i64, reason: Cow<'static, str>) -> Self {
        Self {
            canceled: true,
            cancel_reason: reason,
            ..Self::created(NO_WATCH_ID, revision)
        }
    }

    pub(super) fn canceled(watch_id: i64, revision: i64, reason: Cow<'static, str>) -> Self {
        Self {
            canceled: true,
            cancel_reason: reason,
            ..Self::empty(watch_id, revision)
        }
    }

    pub(super) fn compacted(watch_id: i64, compact_revision: i64) -> Self {
        Self {
            canceled: true,
            compact_revision,
            ..Self::empty(watch_id, 0)
        }
    }

    /// Number of events in the response.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.events.as_ref().map_or(0, |events| events.part.len())
    }

    /// Whether the response is a progress notice.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        !self.created && !self.canceled && self.events.is_none()
    }

    /// The encoded message in pieces: everything before the events, then one
    /// piece per event, each shared with all other watchers of that event.
    /// `header` gives cluster, member and term; its revision is not used.
    pub fn chunks(&self, header: &ResponseHeader) -> impl Iterator<Item = Bytes> + '_ {
        let head = self.head(header).encode_to_vec();
        std::iter::once(Bytes::from(head)).chain(self.events.iter().flat_map(Events::frames))
    }

    /// Appends the encoded message to `buffer`.
    pub fn encode(&self, header: &ResponseHeader, buffer: &mut impl BufMut) {
        for chunk in self.chunks(header) {
            buffer.put(chunk);
        }
    }

    /// Returns the response as a plain message, for callers that need one (gateway, tests).
    ///
    /// # Errors
    /// Never for a response built by the hub; the error comes from the decoder's signature.
    pub fn to_message(&self, header: &ResponseHeader) -> Result<WatchResponse, prost::DecodeError> {
        let mut buffer = BytesMut::new();
        self.encode(header, &mut buffer);
        WatchResponse::decode(buffer.freeze())
    }

    /// Returns all fields except the events; their field numbers are smaller.
    fn head(&self, header: &ResponseHeader) -> WatchResponse {
        WatchResponse {
            header: Some(ResponseHeader {
                revision: self.revision,
                ..*header
            }),
            watch_id: self.watch_id,
            created: self.created,
            canceled: self.canceled,
            compact_revision: self.compact_revision,
            cancel_reason: self.cancel_reason.clone().into_owned(),
            fragment: self.fragment,
            events: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.to_message(&ResponseHeader::default()) {
            Ok(message) => message.fmt(f),
            Err(error) => write!(f, "Response that does not decode: {error}"),
        }
    }
}
