//! Listeners for metrics and probes only.
//!
//! A separate thread serves them from the moment the member exists, also before it has a leader
//! and accepts clients.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use super::spawn;
use crate::http;
use crate::listen::{ListenError, Listening, Security, TlsEndpoint, begins_with_tls};
use crate::member::Member;

/// Connections stay open between two scrapes; they get this long to end.
const GOODBYE: Duration = Duration::from_secs(1);
/// A TLS connection is closed if no request header arrives for this long.
const HEADER_WAIT_MAX: Duration = Duration::from_secs(60);

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
    let thread = spawn("serve-metrics", move || {
        runtime.block_on(async {
            for listening in listeners {
                tokio::spawn(serve(Arc::clone(&member), listening, tls.clone()));
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

async fn serve(member: Arc<Member>, listening: Listening, tls: Option<Arc<TlsEndpoint>>) {
    let router = http::watching_router(&member);
    let served = match (TcpListener::from_std(listening.listener), tls) {
        (Ok(listener), Some(tls)) if listening.security != Security::Plain => {
            serve_tls(listener, listening.security, router, tls).await
        }
        (Ok(listener), _) => axum::serve(listener, router).into_future().await,
        (Err(error), _) => Err(error),
    };
    if let Err(error) = served {
        tracing::warn!(%error, "metrics are not served any more at one of --listen-metrics-urls");
    }
}

async fn serve_tls(
    listener: TcpListener,
    security: Security,
    router: Router,
    tls: Arc<TlsEndpoint>,
) -> std::io::Result<()> {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        tokio::spawn(serve_one(
            stream,
            security,
            router.clone(),
            Arc::clone(&tls),
        ));
    }
}

async fn serve_one(stream: TcpStream, security: Security, router: Router, tls: Arc<TlsEndpoint>) {
    let is_tls = match security {
        Security::Both => begins_with_tls(&stream).await,
        Security::Tls => Some(true),
        Security::Plain => Some(false),
    };
    let service = TowerToHyperService::new(router);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT_MAX);
    let ended = match is_tls {
        None => return,
        Some(false) => {
            builder
                .serve_connection(TokioIo::new(stream), service)
                .await
        }
        Some(true) => match tls.accept(stream).await {
            None => return,
            Some(accepted) => {
                let stream = TokioIo::new(accepted.stream);
                builder.serve_connection(stream, service).await
            }
        },
    };
    if let Err(error) = ended {
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
