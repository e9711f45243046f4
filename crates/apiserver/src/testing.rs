//! An API server inside of a test.
//!
//! ```
//! use portunus_apis::Lifecycle;
//! use portunus_apiserver::{Definition, VersionDefinition, testing};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let schema = json!({"type": "object", "properties": {
//!     "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
//! let widgets = Definition::new("example.io", "Widget", "widgets")
//!     .with_version(VersionDefinition::new("v1", Lifecycle::since("1.34"), schema)?);
//! let server = testing::start([widgets]).await?;
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! The objects are in memory. A kube-rs client is created from the address:
//! `kube::Client::try_from(kube::Config::new(server.url().parse()?))`. The tests in
//! `tests/kube_rs` use every verb, `watcher`, `reflector` and `Controller` that way. The server
//! ends with the value.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use portunus_client::kubernetes::{Interface, Memory};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::api::ApiError;
use crate::authn::{Authenticator, Unauthenticated};
use crate::authz::{Authorizer, Decision};
use crate::definition::Definition;
use crate::drain::Drain;
use crate::identity::{Connection, Identity, MASTERS};
use crate::limits::LimitOptions;
use crate::metrics::Metrics;
use crate::request::RequestInfo;
use crate::service::{Service, ServiceOptions};
use crate::version::kube_version;

/// Why a server for a test could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The definitions cannot be served.
    #[error(transparent)]
    Api(#[from] Box<ApiError>),
    /// The version of this crate is malformed.
    #[error(transparent)]
    Version(#[from] portunus_gates::VersionError),
    /// No port could be opened.
    #[error("no port of the loopback interface could be opened")]
    Listen(#[from] std::io::Error),
}

/// A server on a free port of the loopback interface. Every client is an administrator.
pub struct TestServer {
    address: SocketAddr,
    service: Service,
    drain: Drain,
    store: Arc<dyn Interface>,
    accepting: JoinHandle<()>,
}

/// Starts a server whose objects are in memory.
///
/// # Errors
/// If the definitions cannot be served.
pub async fn start(
    definitions: impl IntoIterator<Item = Definition>,
) -> Result<TestServer, StartError> {
    start_on(definitions, Arc::new(Memory::new()), |_| {}).await
}

/// Starts a server on a store, with changed options.
///
/// # Errors
/// If the definitions cannot be served.
pub async fn start_on(
    definitions: impl IntoIterator<Item = Definition>,
    store: Arc<dyn Interface>,
    change: impl FnOnce(&mut ServiceOptions),
) -> Result<TestServer, StartError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let drain = Drain::new();
    let mut options = ServiceOptions {
        api: portunus_apis::Options::new(kube_version()?),
        authenticator: Arc::new(Everybody),
        authorizer: Arc::new(Everybody),
        anonymous: false,
        storage_prefix: "/registry".to_owned(),
        limits: LimitOptions::default(),
        metrics: Metrics::new(),
        drain: drain.clone(),
        address: address.to_string(),
    };
    change(&mut options);
    let service = Service::new(definitions, Arc::clone(&store), options).map_err(Box::new)?;
    let accepting = tokio::spawn(accept(listener, service.clone()));
    Ok(TestServer {
        address,
        service,
        drain,
        store,
        accepting,
    })
}

impl TestServer {
    /// Returns the address, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Interface> {
        &self.store
    }

    /// Returns the service, for requests without a connection.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Returns the phase of the server: watches end when it ends.
    #[must_use]
    pub fn drain(&self) -> &Drain {
        &self.drain
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, service: Service) {
    // Connections end with the server.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            continue;
        };
        let service = service.clone();
        connections.spawn(async move {
            let connection = Connection {
                peer: Some(peer),
                ..Connection::default()
            };
            let answer = service_fn(move |request| {
                let (service, connection) = (service.clone(), connection.clone());
                async move {
                    let response = service.handle(request, &connection).await;
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            let server = auto::Builder::new(TokioExecutor::new());
            // A connection that breaks is the client's business.
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Makes every client an administrator.
struct Everybody;

impl Authenticator for Everybody {
    fn authenticate(
        &self,
        _headers: &mut HeaderMap,
        _connection: &Connection,
    ) -> Result<Option<Identity>, Unauthenticated> {
        Ok(Some(Identity::new("test", vec![MASTERS.to_owned()])))
    }
}

impl Authorizer for Everybody {
    fn authorize(&self, _identity: &Identity, _request: &RequestInfo) -> Decision {
        Decision::Allowed
    }
}
