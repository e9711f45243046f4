//! A Kubernetes-style API server as a library.
//!
//! A program declares resources, and this crate serves them to kubectl, kube-rs and client-go. The
//! objects are stored through the Kubernetes-etcd interface of `portunus-client`: in Portunus, in
//! etcd, or in memory. Which versions are served, stored and warned about is decided by
//! `portunus-apis`, what happens to one object by `portunus-objects`; this crate does the I/O.
//!
//! ```text
//!  connection ──▶ request info ──▶ limits ──▶ authentication ──▶ authorisation ──▶ handler
//!                                                                                    │
//!    write: decode ──▶ default ──▶ convert to hub ──▶ rules ──▶ validate ──▶ storage version
//!    read:  store ──▶ decode ──▶ convert to the version of the request ──▶ object, table, metadata
//! ```
//!
//! No handler runs before authorisation, and no route is outside of it.

mod admission;
mod api;
pub mod authn;
pub mod authz;
mod body;
mod collection;
mod compactor;
mod custom_resource;
mod definition;
mod discovery;
mod drain;
mod failure;
mod handlers;
mod health;
mod identity;
mod leases;
mod limits;
mod listener;
mod metrics;
mod negotiate;
mod object_counts;
mod openapi;
mod progress;
pub mod protobuf;
mod request;
#[cfg(feature = "resources")]
pub mod resources;
mod respond;
mod service;
mod store;
pub mod testing;
mod version;
mod watch_events;

pub use admission::{Review, Rules};
pub use api::{Api, ApiError};
pub use authn::{Authenticator, Unauthenticated};
pub use authz::{Authorizer, Decision};
pub use body::{Body, full_body};
pub use collection::{Collection, CollectionPublisher};
pub use compactor::compact_periodically;
pub use definition::{Definition, DefinitionError, VersionDefinition};
pub use drain::{Drain, Phase};
pub use failure::{Failure, Outcome};
pub use health::Health;
pub use identity::{ANONYMOUS, AUTHENTICATED, Connection, Identity, MASTERS, UNAUTHENTICATED};
pub use limits::{
    BODY_BYTES_MAX, LONG_RUNNING_MAX, LimitOptions, Limits, Permit, READS_MAX, TooManyRequests,
    WRITES_MAX,
};
pub use listener::{Handler, Listener, ListenerOptions};
pub use metrics::{LongRunning, METRICS_MEDIA_TYPE, Metrics, RequestRecord};
pub use request::{BadPath, Query, RequestInfo};
pub use service::{Service, ServiceOptions};
pub use version::{KUBE_FLOOR, KUBE_VERSION, kube_version, version_document};
