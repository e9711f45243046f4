//! What a watch returns.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;

use super::Error;

/// An event of a watch.
///
/// Events come in the order of their revisions. All events of a revision come before a bookmark of
/// it. A deletion and a modification have the previous value.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A key was created.
    Added {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// The revision of the change.
        revision: i64,
    },
    /// A key was changed.
    Modified {
        /// The key.
        key: Bytes,
        /// The new value.
        value: Bytes,
        /// The value before.
        previous_value: Bytes,
        /// The revision of the change.
        revision: i64,
    },
    /// A key was deleted, by a request or because its lease ended.
    Deleted {
        /// The key.
        key: Bytes,
        /// The value before.
        previous_value: Bytes,
        /// The revision of the change.
        revision: i64,
    },
    /// The watch has received every event up to this revision.
    Bookmark {
        /// The revision, never 0.
        revision: i64,
    },
    /// The watch ended. No event follows.
    Error(Error),
}

impl WatchEvent {
    /// Returns the revision of a change or a bookmark.
    #[must_use]
    pub fn revision(&self) -> Option<i64> {
        match self {
            Self::Added { revision, .. }
            | Self::Modified { revision, .. }
            | Self::Deleted { revision, .. }
            | Self::Bookmark { revision } => Some(*revision),
            Self::Error(_) => None,
        }
    }
}

/// The events of one watch, as a stream. Dropping it ends the watch.
pub struct WatchEvents {
    events: Pin<Box<dyn Stream<Item = WatchEvent> + Send>>,
}

impl WatchEvents {
    /// Creates the events of a watch from a stream of them; for implementations of
    /// [`Interface`](super::Interface).
    pub fn new(events: impl Stream<Item = WatchEvent> + Send + 'static) -> Self {
        Self {
            events: Box::pin(events),
        }
    }

    /// Waits for the next event; `None` after the end of the watch.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        std::future::poll_fn(|context| self.events.as_mut().poll_next(context)).await
    }
}

impl Stream for WatchEvents {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.events.as_mut().poll_next(context)
    }
}

impl fmt::Debug for WatchEvents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WatchEvents")
            .finish_non_exhaustive()
    }
}
