//! A connection, with or without TLS, that reports the first bytes of its server and its own end.
//!
//! tonic considers a connection established once TCP is, although the server may never read
//! from it. With TLS 1.3 a server refuses the certificate of a client only after the client's
//! handshake. The balancer needs both facts, so it dials through [`PrefaceConnector`].

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use portunus_tls::{ClientStream, ClientTls};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::transport::Uri;
use tower_service::Service;

/// The longest wait for the server's first bytes after a TLS handshake before the client sends its
/// own. Servers send their settings without waiting for the client.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(100);

/// The progress of the server's side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Silent,
    Received,
    Closed,
}

/// The progress of one connection, shared with its stream.
#[derive(Debug, Clone)]
pub(crate) struct Preface(Arc<PrefaceState>);

#[derive(Debug)]
struct PrefaceState {
    progress: watch::Sender<Progress>,
    /// Why the connection ended, if a read failed.
    failure: OnceLock<String>,
}

impl Default for Preface {
    fn default() -> Preface {
        Preface(Arc::new(PrefaceState {
            progress: watch::Sender::new(Progress::Silent),
            failure: OnceLock::new(),
        }))
    }
}

impl Preface {
    /// Waits until the server has sent bytes or closed the connection.
    pub(crate) async fn received(&self) {
        let mut progress = self.0.progress.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        let _ = progress
            .wait_for(|progress| *progress > Progress::Silent)
            .await;
    }

    /// Returns whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        *self.0.progress.borrow() == Progress::Closed
    }

    /// Returns why a closed connection ended.
    pub(crate) fn end(&self) -> &str {
        let failure = self.0.failure.get();
        failure.map_or("the server closed the connection", String::as_str)
    }

    /// Records why the connection ended. Only the first failure is kept.
    fn fail(&self, error: &io::Error) {
        let _ = self.0.failure.set(error.to_string());
    }

    fn advance(&self, to: Progress) {
        self.0.progress.send_if_modified(|progress| {
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

/// Dials once: a second dial fails, so that tonic does not replace a broken connection
/// without the balancer.
#[derive(Debug, Clone)]
pub(crate) struct PrefaceConnector {
    preface: Preface,
    tls: Option<ClientTls>,
    /// The host, which the certificate of the server must name.
    host: String,
}

impl PrefaceConnector {
    /// A connector that reports to `preface`.
    pub(crate) fn new(preface: Preface, tls: Option<ClientTls>, host: &str) -> PrefaceConnector {
        PrefaceConnector {
            preface,
            tls,
            host: host.to_owned(),
        }
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
        let PrefaceConnector { preface, tls, host } = self.clone();
        Box::pin(async move {
            if *preface.0.progress.borrow() != Progress::Silent {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, NotSent));
            }
            let uri_host = uri.host().unwrap_or_default();
            // An IPv6 address is in brackets in a URI but not in a socket address.
            let uri_host = uri_host.trim_start_matches('[').trim_end_matches(']');
            let address = (uri_host, uri.port_u16().unwrap_or_default());
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = match tls {
                None => Stream::Plain(stream),
                Some(tls) => {
                    let stream = tls.connect(&host, stream).await?;
                    // A server that refuses the client's certificate sends an alert and closes.
                    // Bytes sent before the alert arrives would replace it by a reset.
                    let first_bytes = stream.get_ref().0.readable();
                    if let Ok(arrived) = timeout(FIRST_BYTES_WAIT, first_bytes).await {
                        arrived?;
                    }
                    Stream::Tls(Box::new(stream))
                }
            };
            Ok(TokioIo::new(PrefaceStream { stream, preface }))
        })
    }
}

/// The transport of a connection.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<ClientStream<TcpStream>>),
}

/// Calls a method of either stream.
macro_rules! either {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Plain($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
            Stream::Tls($inner) => {
                let $inner = Pin::new($inner.as_mut());
                $call
            }
        }
    };
}

/// The connection that reports its progress.
#[derive(Debug)]
pub(crate) struct PrefaceStream {
    stream: Stream,
    preface: Preface,
}

impl PrefaceStream {
    /// Records a failed write. The server may have told the cause before it closed the connection.
    fn note_write<T>(&mut self, written: &Poll<io::Result<T>>, context: &mut Context<'_>) {
        let Poll::Ready(Err(error)) = written else {
            return;
        };
        let mut bytes = [0; 1];
        let mut buffer = ReadBuf::new(&mut bytes);
        match either!(&mut self.stream, stream => stream.poll_read(context, &mut buffer)) {
            Poll::Ready(Err(cause)) => self.preface.fail(&cause),
            _ => self.preface.fail(error),
        }
    }
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
        let read = either!(&mut self.stream, stream => stream.poll_read(context, buffer));
        match &read {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                self.preface.advance(Progress::Received);
            }
            Poll::Ready(end) => {
                if let Err(error) = end {
                    self.preface.fail(error);
                }
                self.preface.advance(Progress::Closed);
            }
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
        let written = either!(&mut self.stream, stream => stream.poll_write(context, bytes));
        self.note_write(&written, context);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = either!(&mut self.stream, stream => stream.poll_flush(context));
        self.note_write(&written, context);
        written
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.stream, stream => stream.poll_shutdown(context))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written =
            either!(&mut self.stream, stream => stream.poll_write_vectored(context, pieces));
        self.note_write(&written, context);
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
