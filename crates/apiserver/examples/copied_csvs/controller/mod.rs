//! The controller of copied CSVs: what it knows, what it decides, and how it talks to the server.
//!
//! ```text
//!  follow (list, watch) ──Change──▶ Cache ──▶ LiveGates ──▶ decide ──Action──▶ Client
//!   OLMConfig, ClusterServiceVersions,                        └──▶ conditions of OLMConfig
//!   Namespaces                         pure: cache, decide, copies, event, conditions
//! ```
//!
//! The gate is checked in memory: the controller never reads OLMConfig to learn a value.

mod cache;
mod client;
mod conditions;
mod copies;
mod decide;
mod event;
mod follow;
mod kubeconfig;
mod reconcile;
mod resources;

pub use client::Client;
pub use reconcile::Controller;

/// The namespaces that keep their copies by default.
#[allow(dead_code, reason = "the test names its own")]
pub const PROTECTED_DEFAULT: &str = "openshift";
