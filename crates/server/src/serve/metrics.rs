//! Listeners for metrics and probes only.
//!
//! A separate thread serves them from the moment the member exists, also before it has a leader
//! and accepts clients.

use std::future::IntoFuture;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::spawn;
use crate::http;
use crate::listen::ListenError;
use crate::member::Member;

/// Connections stay open between two scrapes; they get this long to end.
const GOODBYE: std::time::Duration = std::time::Duration::from_secs(1);

/// The listeners for metrics, and their thread.
#[derive(Default)]
pub struct MetricsServers {
    /// The addresses of the listeners; ports chosen by the system are filled in.
    pub addresses: Vec<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

/// Serves metrics until the member stops.
pub fn serve_metrics(
    member: &Arc<Member>,
    listeners: Vec<TcpListener>,
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
    for listener in &listeners {
        listener
            .set_nonblocking(true)
            .map_err(ListenError::Thread)?;
        addresses.push(listener.local_addr().map_err(ListenError::Thread)?);
    }
    let member = Arc::clone(member);
    let thread = spawn("serve-metrics", move || {
        runtime.block_on(async {
            for listener in listeners {
                tokio::spawn(serve(Arc::clone(&member), listener));
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

async fn serve(member: Arc<Member>, listener: TcpListener) {
    let served = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => {
            axum::serve(listener, http::watching_router(&member))
                .into_future()
                .await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::warn!(%error, "metrics are not served any more at one of --listen-metrics-urls");
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
