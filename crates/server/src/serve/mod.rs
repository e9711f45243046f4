//! Client connections: one acceptor per address, and one single-threaded runtime per core.
//!
//! A connection stays on one core, so its requests never move between threads; new connections
//! are assigned round-robin. Each address has one listener, which hands accepted sockets to the
//! cores, so a second process on the same port fails instead of silently sharing clients.

mod cork;
mod counted;
mod metrics;
mod reserved;

pub use metrics::{MetricsServers, serve_metrics};
pub use reserved::{Reserved, reserve};

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::config::ListenUrl;
use crate::member::{Member, coarse_timeout};
use crate::{grpc, http};

/// Accepted connections that wait for a core.
const CONNECTIONS_QUEUED_MAX: usize = 1024;

/// Requests in progress when the member stops get this long to finish, and the rest as long to
/// be refused.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// The listeners and their threads.
pub struct Servers {
    /// The addresses of the listeners; ports chosen by the system are filled in.
    pub addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

/// An address that cannot be listened at.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ListenError {
    /// Another program listens at the address.
    #[error("{url} is taken: stop the program that listens there, or choose another with --{flag}")]
    Taken {
        url: String,
        flag: &'static str,
        source: io::Error,
    },
    /// Listening failed for another reason.
    #[error("cannot listen at {url}: check --{flag}")]
    Refused {
        url: String,
        flag: &'static str,
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
}

/// Binds every address of a flag. Called before anything else, so that a taken port is found at
/// once.
pub fn bind(urls: &[ListenUrl], flag: &'static str) -> Result<Vec<TcpListener>, ListenError> {
    for_each_url(urls, flag, |addresses| TcpListener::bind(addresses))
}

/// Calls `listen_at` with the addresses of every URL of a flag. `localhost` may be two
/// addresses; one of them is enough, as for etcd.
fn for_each_url<T>(
    urls: &[ListenUrl],
    flag: &'static str,
    listen_at: impl Fn(&[SocketAddr]) -> io::Result<T>,
) -> Result<Vec<T>, ListenError> {
    let mut all = Vec::new();
    for listen in urls {
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::Taken {
                url: listen.url.clone(),
                flag,
                source,
            },
            _ => ListenError::Refused {
                url: listen.url.clone(),
                flag,
                source,
            },
        };
        let addresses = listen.authority.to_socket_addrs().map_err(refused)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        all.push(listen_at(&addresses).map_err(refused)?);
    }
    Ok(all)
}

/// Returns the number of serving threads: one per core.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Serves clients until the member stops.
pub fn serve(member: &Arc<Member>, listeners: Vec<TcpListener>) -> Result<Servers, ListenError> {
    let mut threads = Vec::new();
    let mut queues = Vec::new();
    for core in 0..self::threads() {
        let (sender, receiver) = mpsc::channel(CONNECTIONS_QUEUED_MAX);
        queues.push(sender);
        let member = Arc::clone(member);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ListenError::Thread)?;
        threads.push(spawn(&format!("serve-{core}"), move || {
            let answers = member.waiters.attach_thread(core);
            runtime.spawn(answers);
            runtime.spawn(coarse_timeout::tick());
            runtime.block_on(serve_connections(member, receiver));
        })?);
    }
    let mut addresses = Vec::new();
    for listener in listeners {
        addresses.push(listener.local_addr().map_err(ListenError::Thread)?);
        let queues = queues.clone();
        // Blocked in accept until the process ends; never joined.
        spawn("accept", move || accept(&listener, &queues))?;
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

fn accept(listener: &TcpListener, queues: &[mpsc::Sender<TcpStream>]) {
    for queue in queues.iter().cycle() {
        let connection = match listener.accept() {
            Ok((connection, _)) => connection,
            Err(error) => {
                // Most likely out of file descriptors: give other connections time to close.
                tracing::warn!(%error, "a connection could not be accepted");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if queue.blocking_send(connection).is_err() {
            return;
        }
    }
}

async fn serve_connections(member: Arc<Member>, mut connections: mpsc::Receiver<TcpStream>) {
    let router = grpc::router(&member)
        .merge(http::router(&member))
        .fallback(http::unknown);
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            loop {
                tokio::select! {
                    connection = connections.recv() => match connection {
                        Some(connection) => {
                            let member = Arc::clone(&member);
                            tokio::task::spawn_local(serve_one(member, router.clone(), connection));
                        }
                        None => return,
                    },
                    () = member.stop.stopped() => return,
                }
            }
        })
        .await;
    // Streams end when the member stops, and most requests finish soon. Requests that still
    // wait then are refused, so that clients retry at another member.
    let mut tasks = tasks;
    if tokio::time::timeout(DRAIN_TIME, &mut tasks).await.is_err() {
        member.waiters.refuse_all();
        member.consensus.refuse_reads();
        let _ = tokio::time::timeout(DRAIN_TIME, tasks).await;
    }
}

async fn serve_one(member: Arc<Member>, router: Router, connection: TcpStream) {
    let prepared = connection
        .set_nonblocking(true)
        .and_then(|()| connection.set_nodelay(true))
        .and_then(|()| tokio::net::TcpStream::from_std(connection));
    let Ok(connection) = prepared else {
        return;
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(member.config.max_concurrent_streams)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(member.config.keepalive_interval)
        .keep_alive_timeout(member.config.keepalive_timeout);
    let service = counted::Counted::new(router, Arc::clone(&member));
    let rpcs = &member.metrics.rpcs;
    let (received, sent) = (rpcs.received_bytes.clone(), rpcs.sent_bytes.clone());
    let (socket, cork) = cork::cork(connection, received, sent);
    let mut served = cork.around(builder.serve_connection(TokioIo::new(socket), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = member.stop.stopped() => {
            served.connection().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended with an error");
    }
}
