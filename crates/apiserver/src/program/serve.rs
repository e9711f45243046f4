//! Serving: the socket, the service, and the end of both.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portunus_apiserver::{Drain, Listener, Service, ServiceOptions, compact_periodically};
use portunus_client::kubernetes::Kubernetes;
use thiserror::Error as ThisError;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::flags::ServerFlags;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::{logging, open_files};

/// Why the server cannot listen.
#[derive(Debug, ThisError)]
#[error("cannot listen at {address}: check --bind-address and --secure-port")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Runs a server until a signal ends it.
pub fn run(flags: &ServerFlags) -> Result<(), Box<dyn Error>> {
    logging::init(&flags.log, false);
    open_files::raise();
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let server = Server::start(flags).await?;
        tracing::info!(address = %server.address, "serving");
        server.run(&mut signals, std::future::pending()).await;
        Ok(())
    })
}

/// A bound server.
pub struct Server {
    pub address: SocketAddr,
    listener: Listener,
    service: Service,
    drain: Drain,
    shutdown_delay: Duration,
}

impl Server {
    /// Checks the flags, binds the address and creates the service.
    pub async fn start(flags: &ServerFlags) -> Result<Server, Box<dyn Error>> {
        let settings = Settings::from_flags(flags)?;
        let wanted = SocketAddr::new(flags.listen.bind_address, flags.listen.secure_port);
        let refused = |source| ListenError {
            address: wanted,
            source,
        };
        let socket = TcpListener::bind(wanted).await.map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        let drain = Drain::new();
        let options = ServiceOptions {
            api: settings.versions.api,
            authenticator: settings.authenticator,
            authorizer: settings.authorizer,
            anonymous: flags.authentication.anonymous_auth,
            storage_prefix: flags.store.etcd_prefix.clone(),
            limits: settings.limits,
            metrics: settings.metrics.clone(),
            drain: drain.clone(),
            address: address.to_string(),
        };
        let store = Arc::new(Kubernetes::new(settings.store.clone()));
        let resources = settings.resources;
        let service = Service::new(resources.definitions()?, store, options)?;
        resources.publish_api_versions(service.api());
        let every = flags.store.etcd_compaction_interval;
        if every > Duration::ZERO {
            tokio::spawn(compact_periodically(settings.store.clone(), every));
        }
        resources.follow_feature_gates(settings.store).await;
        log_warnings(&service);
        let tls = Some(settings.tls);
        Ok(Server {
            address,
            listener: Listener::new(socket, tls, settings.listener, settings.metrics),
            service,
            drain,
            shutdown_delay: flags.listen.shutdown_delay_duration,
        })
    }

    /// Serves until a signal arrives or the store has failed, and then until requests have
    /// finished. A second signal ends that at once.
    pub async fn run(self, signals: &mut Signals, store_failed: impl Future<Output = ()>) {
        let drain = self.drain.clone();
        let ending = async {
            let reason = tokio::select! {
                name = signals.next() => name,
                () = store_failed => "the store stopped",
            };
            tracing::info!(reason, "stopping");
            tokio::select! {
                () = drain.begin(self.shutdown_delay) => {}
                name = signals.next() => return name,
            }
            signals.next().await
        };
        let counting = self.service.clone();
        tokio::spawn(async move { counting.keep_counting_objects().await });
        tokio::select! {
            () = self.listener.serve(self.service, self.drain) => tracing::info!("stopped"),
            name = ending => tracing::warn!(signal = name, "stopped before requests finished"),
        }
    }
}

fn log_warnings(service: &Service) {
    for warning in service.api().served().warnings() {
        tracing::warn!(%warning, "APIs");
    }
}
