//! Bodies of responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Frame, SizeHint};

/// The body of a response: complete, or a stream of events.
pub struct Body {
    kind: Kind,
    /// Dropped with the body.
    held: Option<Box<dyn Send>>,
}

enum Kind {
    Full(Option<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// Creates a complete body.
#[must_use]
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    let bytes: Bytes = bytes.into();
    Body::of(Kind::Full((!bytes.is_empty()).then_some(bytes)))
}

impl Body {
    /// Creates a body that is sent in pieces as they come.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body::of(Kind::Stream(Box::pin(pieces)))
    }

    /// Creates an empty body.
    #[must_use]
    pub fn empty() -> Body {
        Body::of(Kind::Full(None))
    }

    /// Keeps a value until the body was sent or is dropped.
    #[must_use]
    pub fn holding(mut self, value: impl Send + 'static) -> Body {
        self.held = Some(Box::new(value));
        self
    }

    fn of(kind: Kind) -> Body {
        Body { kind, held: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.kind {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(pieces) => pieces
                .as_mut()
                .poll_next(context)
                .map(|piece| piece.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Body").finish_non_exhaustive()
    }
}
