//! Accepts connections, with or without TLS, and serves HTTP/1.1 and HTTP/2 on them.
//!
//! ```text
//!  accept ──▶ slot or refusal ──▶ handshake ──▶ HTTP ──▶ Handler, once per request
//!     │                                           │
//!     └── stops when the server ends ─────────────┴── requests in flight finish
//! ```
//!
//! A client that sends nothing, sends slowly, or sends too long headers loses its connection; it
//! costs one slot until then. What a request is, who sends it and how long it may take is the
//! concern of the handler.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use portunus_tls::ServerTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::body::Body;
use crate::drain::Drain;
use crate::identity::Connection;
use crate::metrics::Metrics;
use crate::service::Service;

/// The pause after accepting failed, for example because there are no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often an HTTP/2 connection without traffic is probed, and how long the answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The most requests at a time on an HTTP/2 connection, as in Go.
const STREAMS_MAX: u32 = 250;
/// The most headers of an HTTP/1.1 request.
const HEADERS_MAX: usize = 200;

/// Answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request; it has no way to fail.
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
    ) -> impl Future<Output = Response<Body>> + Send;
}

impl Handler for Service {
    async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Response<Body> {
        Service::handle(self, request, connection).await
    }
}

/// The limits of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerOptions {
    /// The most open connections; further ones are closed at once.
    pub connections_max: u32,
    /// How long a handshake of TLS may take.
    pub handshake_timeout: Duration,
    /// How long the headers of a request may take. On HTTP/1.1 this is also how long a
    /// connection may be idle.
    pub header_timeout: Duration,
    /// The most bytes of the headers of a request.
    pub header_bytes_max: u32,
    /// How long requests may take to finish once the server ends.
    pub drain_timeout: Duration,
}

impl Default for ListenerOptions {
    fn default() -> ListenerOptions {
        ListenerOptions {
            connections_max: 10_000,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(32),
            header_bytes_max: 64 * 1024,
            drain_timeout: Duration::from_secs(60),
        }
    }
}

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    tls: Option<ServerTls>,
    options: ListenerOptions,
    metrics: Metrics,
    http: auto::Builder<TokioExecutor>,
}

impl Listener {
    /// Serves a bound socket: with TLS if it is given.
    #[must_use]
    pub fn new(
        socket: TcpListener,
        tls: Option<ServerTls>,
        options: ListenerOptions,
        metrics: Metrics,
    ) -> Listener {
        let http = http_settings(&options);
        Listener {
            socket,
            shared: Arc::new(Shared {
                tls,
                options,
                metrics,
                http,
            }),
        }
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until the server ends, and then until every connection has ended or
    /// [`drain_timeout`](ListenerOptions::drain_timeout) has passed.
    pub async fn serve<H: Handler>(self, handler: H, drain: Drain) {
        let connections_max = self.shared.options.connections_max;
        let slots = Arc::new(Semaphore::new(connections_max as usize));
        let mut ending = pin!(drain.ending());
        // Dropped at the end of this function, which closes the connections that are left.
        let (_close, closed) = watch::channel(());
        loop {
            let accepted = tokio::select! {
                () = &mut ending => break,
                accepted = self.socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                self.shared.metrics.connections_refused.inc();
                tracing::debug!(%peer, max = connections_max, "refused connection at the limit");
                continue;
            };
            let open = OpenConnection::new(&self.shared.metrics, slot);
            let (shared, handler) = (Arc::clone(&self.shared), handler.clone());
            let (drain, mut closed) = (drain.clone(), closed.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = shared.connection(stream, peer, handler, drain) => {}
                    _ = closed.changed() => {}
                }
                drop(open);
            });
        }
        let drain_timeout = self.shared.options.drain_timeout;
        // Nobody can connect any more.
        drop(self.socket);
        let all_closed = slots.acquire_many(connections_max);
        if timeout(drain_timeout, all_closed).await.is_err() {
            let open = connections_max as usize - slots.available_permits();
            tracing::warn!(
                open,
                "closed connections whose requests did not finish in time"
            );
        }
    }
}

impl Shared {
    async fn connection<H: Handler>(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        handler: H,
        drain: Drain,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "setting TCP_NODELAY failed");
        }
        let Some(tls) = &self.tls else {
            let connection = Connection {
                peer: Some(peer),
                ..Connection::default()
            };
            return self.http(stream, connection, handler, drain).await;
        };
        let accepted = timeout(self.options.handshake_timeout, tls.accept(stream)).await;
        let reason = match accepted {
            Ok(Ok(accepted)) => {
                let certificates = accepted.certificates().map(Bytes::copy_from_slice);
                let connection = Connection {
                    peer: Some(peer),
                    certificates: certificates.collect(),
                };
                return self.http(accepted.stream, connection, handler, drain).await;
            }
            Ok(Err(error)) => error.reason(),
            Err(_) => "the handshake took too long".to_owned(),
        };
        self.metrics.handshake_errors.inc();
        tracing::debug!(%peer, reason, "TLS handshake error");
    }

    /// Serves the requests of a connection.
    async fn http<S, H>(&self, stream: S, connection: Connection, handler: H, drain: Drain)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        H: Handler,
    {
        let has_request = AtomicBool::new(false);
        let peer = connection.peer_text();
        let service = service_fn(|request| {
            has_request.store(true, Ordering::Relaxed);
            let (handler, connection) = (handler.clone(), connection.clone());
            async move { Ok::<_, Infallible>(handler.handle(request, &connection).await) }
        });
        let mut served = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let mut ending = pin!(drain.ending());
        // The HTTP library has no time limit for the bytes by which it tells the versions apart.
        let mut first_request = pin!(sleep(self.options.header_timeout));
        let (mut is_ending, mut is_checked) = (false, false);
        loop {
            tokio::select! {
                result = &mut served => {
                    if let Err(error) = result {
                        tracing::debug!(peer, error, "connection ended");
                    }
                    return;
                }
                () = &mut ending, if !is_ending => {
                    is_ending = true;
                    served.as_mut().graceful_shutdown();
                }
                () = &mut first_request, if !is_checked => {
                    is_checked = true;
                    if !has_request.load(Ordering::Relaxed) {
                        tracing::debug!(peer, "closed connection without a request");
                        return;
                    }
                }
            }
        }
    }
}

fn http_settings(options: &ListenerOptions) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(options.header_bytes_max as usize);
    http.http2()
        .timer(TokioTimer::new())
        .max_header_list_size(options.header_bytes_max)
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    http
}

/// Counts a connection, and holds its slot, until it is dropped.
struct OpenConnection {
    gauge: prometheus::IntGauge,
    _slot: OwnedSemaphorePermit,
}

impl OpenConnection {
    fn new(metrics: &Metrics, slot: OwnedSemaphorePermit) -> OpenConnection {
        let gauge = metrics.connections.clone();
        gauge.inc();
        OpenConnection { gauge, _slot: slot }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
