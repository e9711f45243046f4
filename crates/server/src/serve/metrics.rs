//! Listeners for metrics and probes only.
//!
//! A separate thread serves them from the moment the member exists, also before it has a leader
//! and accepts clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::spawn;
use crate::handles::admission::Admission;
use crate::http;
use crate::listen::{EndpointKind, ListenError, Listening, Security, TlsEndpoint, begins_with_tls};
use crate::member::Member;

/// Connections stay open between two scrapes; they get this long to end.
const GOODBYE: Duration = Duration::from_secs(1);
/// A connection is closed if no request header arrives for this long.
pub(crate) const HEADER_WAIT_MAX: Duration = Duration::from_secs(60);

/// The listeners for metrics, and their thread.
#[derive(Default)]
pub struct MetricsServers {
    /// The addresses of the listeners; ports chosen by the system are filled in.
    pub addresses: Vec<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

/// Serves metrics until the member stops. `tls` exists if a listener uses TLS.
pub fn serve_metrics(
    member: &Arc<Member>,
    listeners: Vec<Listening>,
    tls: Option<Arc<TlsEndpoint>>,
) -> Result<MetricsServers, ListenError> {
    if listeners.is_empty() {
        return Ok(MetricsServers::default());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_name("serve-metrics")
        .enable_all()
        .build()
        .map_err(ListenError::Thread)?;
    let mut addresses = Vec::new();
    for Listening { listener, .. } in &listeners {
        listener
            .set_nonblocking(true)
            .map_err(ListenError::Thread)?;
        addresses.push(listener.local_addr().map_err(ListenError::Thread)?);
    }
    let member = Arc::clone(member);
    let admission = Arc::new(Admission::new(EndpointKind::Metrics, &member.process));
    let thread = spawn("serve-metrics", move || {
        runtime.block_on(async {
            for listening in listeners {
                let (member, admission) = (Arc::clone(&member), Arc::clone(&admission));
                tokio::spawn(serve(member, listening, tls.clone(), admission));
            }
            member.process.stop.stopped().await;
        });
        runtime.shutdown_timeout(GOODBYE);
    })?;
    Ok(MetricsServers {
        addresses,
        thread: Some(thread),
    })
}

async fn serve(
    member: Arc<Member>,
    listening: Listening,
    tls: Option<Arc<TlsEndpoint>>,
    admission: Arc<Admission>,
) {
    let router = http::watching_router(&member);
    let security = listening.security;
    let listener = match TcpListener::from_std(listening.listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, "metrics are not served at one of --listen-metrics-urls");
            return;
        }
    };
    loop {
        let (stream, slot) = match listener.accept().await {
            Ok((stream, address)) => match admission.admit(address) {
                Ok(slot) => (stream, slot),
                Err(_) => continue,
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let served = serve_one(stream, security, router.clone(), tls.clone());
        tokio::spawn(async move {
            // Held until the connection ends.
            let _slot = slot;
            served.await;
        });
    }
}

async fn serve_one(
    stream: TcpStream,
    security: Security,
    router: Router,
    tls: Option<Arc<TlsEndpoint>>,
) {
    let is_tls = match security {
        Security::Both => begins_with_tls(&stream).await,
        Security::Tls => Some(true),
        Security::Plain => Some(false),
    };
    match (is_tls, tls) {
        (Some(false), _) => serve_stream(stream, router).await,
        (Some(true), Some(tls)) => {
            if let Some(accepted) = tls.accept(stream).await {
                serve_stream(accepted.stream, router).await;
            }
        }
        // The client has gone, or, never, an `https` URL has no certificate.
        (None, _) | (Some(true), None) => {}
    }
}

async fn serve_stream(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

impl MetricsServers {
    /// Waits for the thread to end, after the member was stopped.
    pub fn join(self) {
        if let Some(thread) = self.thread {
            // A panic ends the process anyway.
            let _ = thread.join();
        }
    }
}
