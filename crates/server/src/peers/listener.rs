//! The listener of the peer port.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::handles::stop::StopSwitch;

/// A connection is closed if no request header arrives for this long.
pub(crate) const HEADER_WAIT_MAX: Duration = Duration::from_secs(60);

/// Serves peers until the member stops. HTTP/1.1 only, as in etcd.
pub async fn serve(stop: Arc<StopSwitch>, listener: TcpListener, router: Router) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.stopped() => return,
        };
        let connection = match accepted {
            Ok((connection, _)) => connection,
            Err(error) => {
                tracing::warn!(%error, "a peer's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small messages must not wait for each other.
        let _ = connection.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_WAIT_MAX)
                .serve_connection(TokioIo::new(connection), service);
            tokio::select! {
                ended = served => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a peer's connection ended with an error");
                    }
                }
                () = stop.stopped() => {}
            }
        });
    }
}
