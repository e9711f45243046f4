//! A client for etcd's API.
//!
//! `portctl` and the load generator call it. It connects to all endpoints, sends calls to those
//! that are ready in turn, repeats a read on the next one when one is unavailable, puts a
//! deadline on calls, and converts the server's statuses to typed errors. The methods are thin:
//! requests and responses are the generated messages.
//!
//! ```text
//!  method ──▶ deadline ──▶ token ──▶ balancer: next ready endpoint ──▶ generated client ──▶ Status ──▶ ClientError
//!                           ▲ ▲                                                               │
//!                           │ └────── reads, and writes that were not sent, on Unavailable ───┤
//!                           └──────── any call, when the server refuses its token ────────────┘
//! ```
//!
//! It never caches, and never retries a write that may have reached a server.

mod auth;
mod balancer;
mod cluster;
mod connection;
mod endpoint;
mod error;
mod feature_gates;
mod keep_alive;
mod kv;
mod lease;
mod maintenance;
mod preface;
mod session;
mod tls;
mod watch;

pub use connection::{Client, Options};
pub use endpoint::{EndpointError, EndpointParts, Scheme, parse_endpoint};
pub use error::{ClientError, ConnectError, RequireError};
pub use feature_gates::GateWatcher;
pub use keep_alive::KeepAlive;
pub use session::Credentials;
pub use tls::{KeyPairFiles, LoadError, Tls, TlsOptions};
pub use watch::{ProgressRequester, Watcher};
