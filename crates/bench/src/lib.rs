//! The same load on Portunus and on etcd, in one run, so that only ratios need believing.
//!
//! ```text
//!  command ──▶ compare ──▶ for each round, workload and server:
//!                            server    start it, fresh
//!                            workload  fill it, load it   (client: connections, keys)
//!                            window    when to count      (usage: CPU and memory of a process)
//!                            report    samples ──▶ tables, JSON
//! ```
//!
//! Called by the `compare` binary. It never looks into a server: everything is measured
//! from outside, over the wire and from `/proc`, and alike for both.

pub mod client;
pub mod command;
pub mod compare;
pub mod report;
pub mod server;
pub mod usage;
pub mod window;
pub mod workload;
