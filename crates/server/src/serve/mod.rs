//! Client connections: one acceptor per address, and one single-threaded runtime per core.
//!
//! A connection stays on one core, so its requests never move between threads; new connections
//! are assigned round-robin. Each address has one listener, which hands accepted sockets to the
//! cores, so a second process on the same port fails instead of silently sharing clients.

mod cork;
mod counted;
mod deadline;
mod expiry;
mod metrics;

pub(crate) use metrics::HEADER_WAIT_MAX as METRICS_HEADER_WAIT_MAX;
pub use metrics::{MetricsServers, serve_metrics};

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::handles::Process;
use crate::handles::admission::Admission;
use crate::handles::connections::{Connection, ConnectionSlot};
use crate::listen::{EndpointKind, ListenError, Listening, Security, TlsEndpoint, begins_with_tls};
use crate::member::Member;
use crate::{coarse_timeout, grpc, http};
use counted::Client;
use expiry::Expired;

/// Accepted connections that wait for a core.
pub(crate) const CONNECTIONS_QUEUED_MAX: usize = 1024;

/// Requests in progress when the member stops get this long to finish, and the rest as long to
/// be refused.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// The time for an idle client to take the notice that its connection is closed.
const GOODBYE_TIME: Duration = Duration::from_secs(10);

/// The listeners and their threads.
pub struct Servers {
    /// The addresses of the listeners; ports chosen by the system are filled in.
    pub addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

/// Returns the number of serving threads: one per core.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The services of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// gRPC and HTTP.
    All,
    /// gRPC only, where HTTP has listeners of its own.
    Grpc,
    /// HTTP only.
    Http,
}

/// A listener for clients.
#[derive(Debug)]
pub struct ClientListener {
    /// The address.
    pub listening: Listening,
    /// The services there.
    pub traffic: Traffic,
}

/// An accepted connection that waits for its core.
struct Accepted {
    stream: TcpStream,
    slot: ConnectionSlot,
    security: Security,
    traffic: Traffic,
}

/// Serves clients until the member stops. `tls` exists if a listener uses TLS.
pub fn serve(
    member: &Arc<Member>,
    listeners: Vec<ClientListener>,
    tls: Option<Arc<TlsEndpoint>>,
) -> Result<Servers, ListenError> {
    let mut threads = Vec::new();
    let mut queues = Vec::new();
    for core in 0..self::threads() {
        let (sender, receiver) = mpsc::channel(CONNECTIONS_QUEUED_MAX);
        queues.push(sender);
        let (member, tls) = (Arc::clone(member), tls.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .thread_name("serve-blocking")
            .enable_all()
            .build()
            .map_err(ListenError::Thread)?;
        threads.push(spawn(&format!("serve-{core}"), move || {
            let answers = member.proposals.waiters.attach_thread(core);
            runtime.spawn(answers);
            runtime.spawn(coarse_timeout::tick());
            runtime.block_on(serve_connections(member, tls, receiver));
        })?);
    }
    let admission = Arc::new(Admission::new(EndpointKind::Client, &member.process));
    let mut addresses = Vec::new();
    for listener in listeners {
        let address = listener.listening.listener.local_addr();
        addresses.push(address.map_err(ListenError::Thread)?);
        let (queues, admission) = (queues.clone(), Arc::clone(&admission));
        // Blocked in accept until the process ends; never joined.
        spawn("accept", move || accept(&listener, &admission, &queues))?;
    }
    Ok(Servers { addresses, threads })
}

impl Servers {
    /// Waits until every connection is closed, after the member was stopped.
    pub fn join(self) {
        for thread in self.threads {
            // A panic ends the process anyway.
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ListenError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(ListenError::Thread)
}

fn accept(
    client_listener: &ClientListener,
    admission: &Admission,
    queues: &[mpsc::Sender<Accepted>],
) {
    let Listening { listener, security } = &client_listener.listening;
    for queue in queues.iter().cycle() {
        let (stream, slot) = match listener.accept() {
            Ok((stream, address)) => match admission.admit(address) {
                Ok(slot) => (stream, slot),
                Err(_) => continue,
            },
            Err(error) => {
                // Most likely out of file descriptors: give other connections time to close.
                tracing::warn!(%error, "a connection could not be accepted");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let accepted = Accepted {
            stream,
            slot,
            security: *security,
            traffic: client_listener.traffic,
        };
        if queue.blocking_send(accepted).is_err() {
            return;
        }
    }
}

/// The services of each kind of listener.
struct Routers {
    all: Router,
    grpc: Router,
    http: Router,
}

impl Routers {
    fn new(member: &Arc<Member>) -> Routers {
        let (grpc, http) = (grpc::router(member), http::router(member));
        Routers {
            all: grpc.clone().merge(http.clone()).fallback(http::unknown),
            grpc: grpc.fallback(http::unknown),
            http: http.fallback(http::unknown),
        }
    }

    fn of(&self, traffic: Traffic) -> &Router {
        match traffic {
            Traffic::All => &self.all,
            Traffic::Grpc => &self.grpc,
            Traffic::Http => &self.http,
        }
    }
}

async fn serve_connections(
    member: Arc<Member>,
    tls: Option<Arc<TlsEndpoint>>,
    mut connections: mpsc::Receiver<Accepted>,
) {
    let routers = Routers::new(&member);
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            loop {
                tokio::select! {
                    connection = connections.recv() => match connection {
                        Some(connection) => {
                            let router = routers.of(connection.traffic).clone();
                            let member = Arc::clone(&member);
                            let served = serve_one(member, router, connection, tls.clone());
                            tokio::task::spawn_local(served);
                        }
                        None => return,
                    },
                    () = member.process.stop.stopped() => return,
                }
            }
        })
        .await;
    // Streams end when the member stops, and most requests finish soon. Requests that still
    // wait then are refused, so that clients retry at another member.
    let mut tasks = tasks;
    if tokio::time::timeout(DRAIN_TIME, &mut tasks).await.is_err() {
        member.proposals.waiters.refuse_all();
        member.consensus.refuse_reads();
        let _ = tokio::time::timeout(DRAIN_TIME, tasks).await;
    }
}

async fn serve_one(
    member: Arc<Member>,
    router: Router,
    accepted: Accepted,
    tls: Option<Arc<TlsEndpoint>>,
) {
    // The slot is held until the connection ends.
    let Accepted {
        stream,
        slot,
        security,
        ..
    } = accepted;
    let process = Arc::clone(&member.process);
    let mut client = Client {
        address: slot.address(),
        certificate: None,
        auth: Arc::clone(&member.auth),
    };
    let prepared = stream
        .set_nonblocking(true)
        .and_then(|()| stream.set_nodelay(true))
        .and_then(|()| tokio::net::TcpStream::from_std(stream));
    let stream = match prepared {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a connection ended before it was served");
            return;
        }
    };
    let is_tls = match security {
        Security::Plain => false,
        Security::Tls => true,
        Security::Both => match begins_with_tls(&stream).await {
            Some(is_tls) => is_tls,
            None => return,
        },
    };
    match (is_tls, tls) {
        (false, _) => serve_stream(process, router, stream, client, slot).await,
        (true, Some(tls)) => {
            let accepted = tokio::select! {
                accepted = tls.accept(stream) => accepted,
                () = process.stop.stopped() => None,
            };
            if let Some(accepted) = accepted {
                client.certificate = accepted.client;
                serve_stream(process, router, accepted.stream, client, slot).await;
            }
        }
        // The configuration has no `https` URL without a certificate.
        (true, None) => {}
    }
}

async fn serve_stream(
    process: Arc<Process>,
    router: Router,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    client: Client,
    slot: ConnectionSlot,
) {
    let limits = &process.config.limits;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(header_buffer_bytes(limits.header_bytes_max))
        .header_read_timeout(Some(limits.first_byte_timeout).filter(|time| !time.is_zero()));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(process.config.max_concurrent_streams)
        .max_header_list_size(
            u32::try_from(header_buffer_bytes(limits.header_bytes_max)).unwrap_or(u32::MAX),
        )
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(process.config.keepalive_interval)
        .keep_alive_timeout(process.config.keepalive_timeout);
    let connection = Arc::new(Connection::new(slot.id));
    let tracked = Arc::clone(&connection);
    let service = counted::Counted::new(router, Arc::clone(&process), tracked, client);
    let rpcs = &process.metrics.rpcs;
    let (received, sent) = (rpcs.received_bytes.clone(), rpcs.sent_bytes.clone());
    let (socket, cork) = cork::cork(stream, Arc::clone(&connection), received, sent);
    let mut served = cork.around(builder.serve_connection(TokioIo::new(socket), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = process.stop.stopped() => {
            served.connection().graceful_shutdown();
            served.await
        }
        expired = expiry::expired(limits, &connection) => match expired {
            Expired::BeforeFirstByte => {
                process.metrics.limits.closed_before_first_byte.inc();
                return;
            }
            Expired::Idle => {
                process.metrics.limits.closed_idle.inc();
                served.connection().graceful_shutdown();
                // A client that answers nothing is not waited for.
                match tokio::time::timeout(GOODBYE_TIME, served).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        },
    };
    if let Err(error) = ended {
        if is_header_timeout(&*error) {
            process.metrics.limits.closed_before_first_byte.inc();
        }
        tracing::debug!(error, "a connection ended with an error");
    }
}

/// Returns the length of headers that the HTTP library takes. It is twice the limit, so that a
/// refusal at the limit is one of the server, with a status and a metric.
fn header_buffer_bytes(header_bytes_max: usize) -> usize {
    const BYTES_MIN: usize = 64 * 1024;
    header_bytes_max.saturating_mul(2).max(BYTES_MIN)
}

/// Returns whether a connection ended because the head of an HTTP/1.1 request did not arrive.
fn is_header_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<hyper::Error>();
    error.is_some_and(hyper::Error::is_timeout)
}
