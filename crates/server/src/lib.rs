//! One member of a cluster: an etcd server.
//!
//! `portunus` starts one [`member`]; services ([`grpc`], [`http`]) propose to its log and
//! read its store; one thread applies the log ([`apply`]).
//!
//! Each module uses only modules above it in this list:
//!
//! ```text
//!  config, listen      what was asked for; the bound addresses
//!  metrics             what is counted
//!  handles             what threads and services share, by concern
//!  peers               the transport to other members
//!  proposals           requests on their way into the log, answers on their way back
//!  apply               the apply thread
//!  member              the handles together: operations and background tasks
//!  scrape              gauges that are read from the handles
//!  grpc, http, serve   services for clients and peers, and their listeners
//!  start               the steps from a configuration to a running member
//!  limits              the table of all limits, for `docs/limits.md`
//! ```

pub mod apply;
mod coarse_timeout;
pub mod command;
pub mod config;
mod error_chain;
pub mod grpc;
pub mod handles;
pub mod http;
pub mod limits;
pub mod listen;
mod log_throttle;
pub mod logging;
pub mod member;
pub mod metrics;
pub mod peers;
pub mod proposals;
mod scrape;
pub mod serve;
pub mod start;
