//! A client for etcd's API, for programs of this repository and for anybody else.
//!
//! `portctl` and the load generator call it. It connects to one of several endpoints, moves a
//! read to the next one when the current is unavailable, puts a deadline on calls, and turns
//! what the server says into typed errors. The methods are as thin as they can be: requests and
//! responses are the generated messages.
//!
//! ```text
//!  method ──▶ deadline ──▶ connection to one endpoint ──▶ generated client ──▶ Status ──▶ ClientError
//!                 ▲                                                              │
//!                 └────────── next endpoint, reads only, on Unavailable ─────────┘
//! ```
//!
//! What it never does: cache, retry a write that may have reached a server, or speak to a server
//! in a way it was not asked to (TLS and authentication come later and are refused until then).

mod cluster;
mod connection;
mod endpoint;
mod error;
mod feature_gates;
mod keep_alive;
mod kv;
mod lease;
mod maintenance;
mod watch;

pub use connection::{Client, Options};
pub use endpoint::{EndpointError, check_endpoint};
pub use error::{ClientError, ConnectError, RequireError};
pub use feature_gates::GateWatcher;
pub use keep_alive::KeepAlive;
pub use watch::{ProgressRequester, Watcher};
