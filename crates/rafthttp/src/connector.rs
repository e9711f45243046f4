//! Connections to peers: TCP for `http` addresses, TLS for `https` addresses.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use portunus_tls::{ClientStream, ClientTls};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::config::Config;

const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Why no connection to a peer could be made.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    /// TCP failed.
    #[error("connecting failed")]
    Tcp(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The peer's address needs TLS, which this member has no settings for.
    #[error("the address is https, but this member has no TLS settings for peers")]
    NoTls,
    /// The handshake failed.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The handshake took too long.
    #[error("the TLS handshake took longer than {} ms", timeout.as_millis())]
    HandshakeTimedOut {
        /// The time limit.
        timeout: Duration,
    },
}

/// Connects to peers.
#[derive(Debug, Clone)]
pub(crate) struct PeerConnector {
    tcp: HttpConnector,
    tls: Option<ClientTls>,
    handshake_timeout: Duration,
}

impl PeerConnector {
    /// A connector with the dial timeout of the configuration, for TCP and for the handshake.
    pub(crate) fn new(config: &Config) -> PeerConnector {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_connect_timeout(Some(config.dial_timeout));
        PeerConnector {
            tcp,
            tls: config.tls.clone(),
            handshake_timeout: config.dial_timeout,
        }
    }
}

impl Service<Uri> for PeerConnector {
    type Response = TokioIo<PeerStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        let ready = self.tcp.poll_ready(context);
        ready.map_err(|error| ConnectError::Tcp(Box::new(error)))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().unwrap_or_default().to_owned();
        let (tls, timeout) = (self.tls.clone(), self.handshake_timeout);
        let connecting = self.tcp.call(uri);
        Box::pin(async move {
            let tls = match (is_tls, tls) {
                (false, _) => None,
                (true, Some(tls)) => Some(tls),
                (true, None) => return Err(ConnectError::NoTls),
            };
            let connected = connecting.await;
            let tcp = connected.map_err(|error| ConnectError::Tcp(Box::new(error)))?;
            let tcp = tcp.into_inner();
            let stream = match tls {
                None => PeerStream::Plain(tcp),
                Some(tls) => {
                    let handshake = tokio::time::timeout(timeout, tls.connect(&host, tcp));
                    let stream = handshake
                        .await
                        .map_err(|_| ConnectError::HandshakeTimedOut { timeout })?
                        .map_err(ConnectError::Handshake)?;
                    PeerStream::Tls(Box::new(stream))
                }
            };
            Ok(TokioIo::new(stream))
        })
    }
}

/// A connection to a peer.
#[derive(Debug)]
pub(crate) enum PeerStream {
    Plain(TcpStream),
    Tls(Box<ClientStream<TcpStream>>),
}

impl Connection for PeerStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            PeerStream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            PeerStream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            PeerStream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            PeerStream::Plain(stream) => stream.is_write_vectored(),
            PeerStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            PeerStream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            PeerStream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
