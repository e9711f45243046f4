//! The same load on Portunus and on etcd, in one run, so that only ratios need believing.
//!
//! ```text
//!  command ──▶ compare ──▶ for each round, workload and server:
//!                            cluster   start it, fresh    (server: one process)
//!                            workload  fill it, load it   (client: keys; wire: gRPC, cheaply;
//!                                                          closed_loop: many clients; answer)
//!                            window    when to count      (usage: CPU and memory of a process)
//!                            report    samples ──▶ tables (lines: JSON; machine: where it ran)
//! ```
//!
//! Called by the `compare` binary. It never looks into a server: everything is measured
//! from outside, over the wire and from `/proc`, and alike for both.

pub mod answer;
pub mod client;
pub mod closed_loop;
pub mod cluster;
pub mod command;
pub mod compare;
pub mod lines;
pub mod machine;
pub mod report;
pub mod server;
pub mod usage;
pub mod window;
pub mod wire;
pub mod workload;
