//! The cost of client libraries: the same calls to one server by different clients.
//!
//! ```text
//!  command ──▶ a Portunus server, filled once
//!          └─▶ for each round and work: tonic      generated stubs, no client library
//!                                       portunus   portunus-client
//!                                       clientv3   etcd's Go client, a process of its own
//!              ──▶ report: operations per second, CPU time of the client per operation, ratios
//! ```
//!
//! Called by the `compare-client` binary. Only the CPU time of the client is compared: the server
//! is the same, and shares the cores.

pub mod command;
mod go_client;
mod measure;
mod report;
mod rust_clients;
mod work;

pub use measure::{Cost, MeasureError};
pub use report::Report;
pub use work::{Library, Work};
