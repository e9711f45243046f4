//! The listener of the peer port.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::handles::admission::Admission;
use crate::handles::stop::StopSwitch;
use crate::listen::TlsEndpoint;

/// A connection is closed if no request header arrives for this long.
pub(crate) const HEADER_WAIT_MAX: Duration = Duration::from_secs(60);

/// Serves peers until the member stops, with TLS if `tls` exists, and closes connections above
/// the limits of `admission`. HTTP/1.1 only, as in etcd.
pub async fn serve(
    stop: Arc<StopSwitch>,
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<TlsEndpoint>>,
    admission: Arc<Admission>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.stopped() => return,
        };
        let (connection, slot) = match accepted {
            Ok((connection, address)) => match admission.admit(address) {
                Ok(slot) => (connection, slot),
                Err(_) => continue,
            },
            Err(error) => {
                tracing::warn!(%error, "a peer's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small messages must not wait for each other.
        let _ = connection.set_nodelay(true);
        let (router, stop, tls) = (router.clone(), Arc::clone(&stop), tls.clone());
        tokio::spawn(async move {
            // Held until the connection ends.
            let _slot = slot;
            tokio::select! {
                () = serve_one(connection, router, tls) => {}
                () = stop.stopped() => {}
            }
        });
    }
}

async fn serve_one(connection: TcpStream, router: Router, tls: Option<Arc<TlsEndpoint>>) {
    match tls {
        None => serve_stream(connection, router).await,
        Some(tls) => {
            if let Some(accepted) = tls.accept(connection).await {
                serve_stream(accepted.stream, router).await;
            }
        }
    }
}

async fn serve_stream(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let service = TowerToHyperService::new(router);
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a peer's connection ended with an error");
    }
}
