//! A TCP connection that reports the first bytes of its server and its own end.
//!
//! tonic considers a connection established once TCP is, although the server may never read
//! from it. The balancer needs both facts, so it dials through [`PrefaceConnector`].

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::Uri;
use tower_service::Service;

/// The progress of the server's side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Silent,
    Received,
    Closed,
}

/// The progress of one connection, shared with its stream.
#[derive(Debug, Clone)]
pub(crate) struct Preface(Arc<watch::Sender<Progress>>);

impl Default for Preface {
    fn default() -> Preface {
        Preface(Arc::new(watch::Sender::new(Progress::Silent)))
    }
}

impl Preface {
    /// Waits until the server has sent bytes or closed the connection.
    pub(crate) async fn received(&self) {
        let mut progress = self.0.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        let _ = progress
            .wait_for(|progress| *progress > Progress::Silent)
            .await;
    }

    /// Returns whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        *self.0.borrow() == Progress::Closed
    }

    fn advance(&self, to: Progress) {
        self.0.send_if_modified(|progress| {
            let is_progress = to > *progress;
            if is_progress {
                *progress = to;
            }
            is_progress
        });
    }
}

/// The connection was closed before a call could be sent on it.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the connection was closed before the request was sent")]
struct NotSent;

/// Returns whether a call failed before any of it was sent, so that a retry is safe.
pub(crate) fn was_never_sent(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if error.is::<NotSent>() || inner.is_some_and(|inner| inner.is::<NotSent>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Dials TCP once: a second dial fails, so that tonic does not replace a broken connection
/// without the balancer.
#[derive(Debug, Clone)]
pub(crate) struct PrefaceConnector {
    preface: Preface,
}

impl PrefaceConnector {
    /// A connector that reports to `preface`.
    pub(crate) fn new(preface: Preface) -> PrefaceConnector {
        PrefaceConnector { preface }
    }
}

impl Service<Uri> for PrefaceConnector {
    type Response = TokioIo<PrefaceStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let preface = self.preface.clone();
        Box::pin(async move {
            if *preface.0.borrow() != Progress::Silent {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, NotSent));
            }
            let host = uri.host().unwrap_or_default();
            // An IPv6 address is in brackets in a URI but not in a socket address.
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or_default())).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(PrefaceStream { stream, preface }))
        })
    }
}

/// The connection that reports its progress.
#[derive(Debug)]
pub(crate) struct PrefaceStream {
    stream: TcpStream,
    preface: Preface,
}

impl Drop for PrefaceStream {
    fn drop(&mut self) {
        self.preface.advance(Progress::Closed);
    }
}

impl AsyncRead for PrefaceStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &read {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                self.preface.advance(Progress::Received);
            }
            Poll::Ready(_) => self.preface.advance(Progress::Closed),
            Poll::Pending => {}
        }
        read
    }
}

impl AsyncWrite for PrefaceStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
