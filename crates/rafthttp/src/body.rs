//! Bodies of requests and answers: building, collecting within a limit, forwarding in pieces.

use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_core::stream::BoxStream;
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::sync::lock;

/// The body of a request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// Returns a body of these bytes.
pub(crate) fn full(bytes: Bytes) -> RequestBody {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Why a body was not read completely.
#[derive(Debug, Error)]
pub(crate) enum CollectError {
    #[error("longer than the limit")]
    TooLong,
    #[error("no data within the timeout")]
    Stalled,
    #[error("truncated")]
    Broken(#[source] axum::Error),
}

/// Reads a body of at most `bytes_max`. Memory is allocated for received bytes, not for the
/// announced length. `pause_max` limits the wait for each piece.
pub(crate) async fn collect<B>(
    body: B,
    bytes_max: usize,
    pause_max: Option<Duration>,
) -> Result<Bytes, CollectError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(CollectError::TooLong);
    }
    let mut body = std::pin::pin!(body);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(piece) = next_piece(body.as_mut(), pause_max).await? {
        if first.len() + rest.len() + piece.len() > bytes_max {
            return Err(CollectError::TooLong);
        }
        if first.is_empty() && rest.is_empty() {
            // Most bodies are a single piece, which is not copied.
            first = piece;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
                first = Bytes::new();
            }
            rest.extend_from_slice(&piece);
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

/// Returns the next piece of a body, or `None` at its end.
pub(crate) async fn next_piece<B>(
    mut body: Pin<&mut B>,
    pause_max: Option<Duration>,
) -> Result<Option<Bytes>, CollectError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    loop {
        let frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context));
        let frame = match pause_max {
            None => frame.await,
            Some(pause) => tokio::time::timeout(pause, frame)
                .await
                .map_err(|_| CollectError::Stalled)?,
        };
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(CollectError::Broken(axum::Error::new(error))),
            // Trailers are ignored.
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

/// The progress of an upload; shared by its body and the stall check.
pub(crate) struct Progress {
    state: Mutex<ProgressState>,
}

#[derive(Clone, Copy)]
pub(crate) struct ProgressState {
    pub last: Instant,
    pub bytes: u64,
    /// The connection has taken the last byte.
    pub complete: bool,
}

impl Progress {
    pub fn new() -> Progress {
        Progress {
            state: Mutex::new(ProgressState {
                last: Instant::now(),
                bytes: 0,
                complete: false,
            }),
        }
    }

    pub fn get(&self) -> ProgressState {
        *lock(&self.state)
    }

    fn advance(&self, bytes: usize, complete: bool) {
        let mut state = lock(&self.state);
        state.last = Instant::now();
        state.bytes += bytes as u64;
        state.complete |= complete;
    }
}

/// A request body of a head and a stream of pieces.
pub(crate) struct Upload<P> {
    head: Option<Bytes>,
    pieces: BoxStream<'static, io::Result<Bytes>>,
    progress: P,
}

impl<P> Upload<P> {
    pub fn new(
        head: Bytes,
        pieces: BoxStream<'static, io::Result<Bytes>>,
        progress: P,
    ) -> Upload<P> {
        Upload {
            head: Some(head),
            pieces,
            progress,
        }
    }
}

impl<P: std::ops::Deref<Target = Progress> + Unpin> Body for Upload<P> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(head) = self.head.take() {
            self.progress.advance(head.len(), false);
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        match self.pieces.as_mut().poll_next(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(piece))) => {
                self.progress.advance(piece.len(), false);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => {
                self.progress.advance(0, true);
                Poll::Ready(None)
            }
        }
    }
}

/// A part of a body that is forwarded.
pub(crate) enum Piece {
    Data(Bytes),
    Broken(io::Error),
    /// The sender completed the body.
    End,
}

/// Forwarded pieces as a stream. If the forwarder is dropped before [`Piece::End`], the
/// stream ends with an error, so that a truncated body never counts as complete.
pub(crate) struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    ended: bool,
}

impl Pieces {
    pub fn new(pieces: mpsc::Receiver<Piece>) -> Pieces {
        Pieces {
            pieces,
            ended: false,
        }
    }
}

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(piece) = self.pieces.poll_recv(context) else {
            return Poll::Pending;
        };
        self.ended = !matches!(piece, Some(Piece::Data(_)));
        Poll::Ready(match piece {
            Some(Piece::Data(bytes)) => Some(Ok(bytes)),
            Some(Piece::Broken(error)) => Some(Err(error)),
            Some(Piece::End) => None,
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}
