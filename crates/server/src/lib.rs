//! One member of a cluster: an etcd server.
//!
//! `portunus` starts one [`member`]; services ([`grpc`], [`http`]) propose to its log and
//! read its store; one thread applies the log ([`apply`]).

pub mod apply;
pub mod command;
pub mod config;
mod error_chain;
pub mod grpc;
pub mod http;
pub mod logging;
pub mod member;
pub mod metrics;
pub mod peers;
pub mod serve;
