//! Runs the same requests on this library's API server and on Kubernetes' sample API server.
//!
//! ```text
//!  command ──▶ for each round and server: pair    a new store and a new API server on it
//!                                         loads   requests over TLS (client), with the CPU time
//!                                                 of the API server (usage)
//!                                         figures samples ──▶ a table of ratios
//! ```
//!
//! Called by the `compare-apiserver` binary. The CPU time of the store is not counted: both API
//! servers have the same one.

pub mod client;
pub mod command;
pub mod figures;
pub mod loads;
pub mod pair;
