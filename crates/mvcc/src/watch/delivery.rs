//! Events queued for watchers, encoded once for all of them.
//!
//! Many watchers get the same events. They share the list of matching events
//! (per watched range) and the encoded events (with and without the previous
//! version). A queue holds pointers to both. The first network task that sends
//! an event encodes it, never the publisher; the bytes are freed with the last
//! pointer, so history is not kept twice.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use prost::encoding::message;

use super::event::RevisionEvents;

/// Field number of `events` in `WatchResponse`; the bytes of an event begin with it.
const EVENTS_FIELD: u32 = 11;

#[derive(Default)]
struct Frames {
    plain: OnceLock<Bytes>,
    with_prev: OnceLock<Bytes>,
}

/// One revision together with the encoded form of its events.
pub(super) struct EncodedRevision {
    source: Arc<RevisionEvents>,
    frames: Box<[Frames]>,
    bytes_plain: usize,
    bytes_with_prev: usize,
}

impl EncodedRevision {
    pub(super) fn new(source: Arc<RevisionEvents>) -> Self {
        let sum = |with_prev| {
            source
                .events
                .iter()
                .map(|e| e.bytes_estimate(with_prev))
                .sum()
        };
        Self {
            frames: source.events.iter().map(|_| Frames::default()).collect(),
            bytes_plain: sum(false),
            bytes_with_prev: sum(true),
            source,
        }
    }

    fn frame(&self, index: usize, with_prev: bool) -> Bytes {
        let Some((event, frames)) = self.source.events.get(index).zip(self.frames.get(index))
        else {
            return Bytes::new();
        };
        // Without a previous version both forms are the same bytes.
        let with_prev = with_prev && event.prev().is_some();
        let cell = if with_prev {
            &frames.with_prev
        } else {
            &frames.plain
        };
        cell.get_or_init(|| {
            let message = event.to_message(with_prev);
            let mut frame = BytesMut::with_capacity(message::encoded_len(EVENTS_FIELD, &message));
            message::encode(EVENTS_FIELD, &message, &mut frame);
            frame.freeze()
        })
        .clone()
    }
}

/// Events chosen from one or more revisions.
pub(super) struct SelectedEvents {
    header_revision: i64,
    picks: Box<[(Arc<EncodedRevision>, usize)]>,
    bytes_plain: usize,
    bytes_with_prev: usize,
}

/// The events of one response to one watcher; cheap to clone.
#[derive(Clone)]
pub(super) enum Delivery {
    /// Every event of one revision: the common case.
    Whole(Arc<EncodedRevision>),
    /// Some events of one revision, or events of several.
    Selected(Arc<SelectedEvents>),
}

impl Delivery {
    pub(super) fn selected(
        header_revision: i64,
        picks: Box<[(Arc<EncodedRevision>, usize)]>,
    ) -> Self {
        let sum = |with_prev| {
            let sizes = picks.iter().map(|(revision, index)| {
                let event = revision.source.events.get(*index);
                event.map_or(0, |event| event.bytes_estimate(with_prev))
            });
            sizes.sum()
        };
        Self::Selected(Arc::new(SelectedEvents {
            header_revision,
            bytes_plain: sum(false),
            bytes_with_prev: sum(true),
            picks,
        }))
    }

    pub(super) fn header_revision(&self) -> i64 {
        match self {
            Self::Whole(revision) => revision.source.revision,
            Self::Selected(selected) => selected.header_revision,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole(revision) => revision.source.events.len(),
            Self::Selected(selected) => selected.picks.len(),
        }
    }

    /// Estimated bytes on the wire.
    pub(super) fn bytes(&self, with_prev: bool) -> usize {
        match (self, with_prev) {
            (Self::Whole(revision), false) => revision.bytes_plain,
            (Self::Whole(revision), true) => revision.bytes_with_prev,
            (Self::Selected(selected), false) => selected.bytes_plain,
            (Self::Selected(selected), true) => selected.bytes_with_prev,
        }
    }

    /// The wire bytes of one event, with field number and length in front.
    pub(super) fn frame(&self, index: usize, with_prev: bool) -> Bytes {
        match self {
            Self::Whole(revision) => revision.frame(index, with_prev),
            Self::Selected(selected) => match selected.picks.get(index) {
                Some((revision, event)) => revision.frame(*event, with_prev),
                None => Bytes::new(),
            },
        }
    }
}
