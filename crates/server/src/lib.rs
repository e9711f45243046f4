//! One member of a cluster: an etcd server.
//!
//! `portunus` starts one [`member`]; services ([`grpc`], [`http`]) propose to its log and
//! read its store; one thread applies the log ([`apply`]). [`migrate`] works on the directory
//! of a member that is stopped.

pub mod apply;
pub mod command;
pub mod config;
pub mod data_dir;
mod error_chain;
pub mod export;
pub mod grpc;
pub mod http;
pub mod import;
pub mod logging;
pub mod member;
pub mod metrics;
pub mod migrate;
pub mod peers;
pub mod serve;
