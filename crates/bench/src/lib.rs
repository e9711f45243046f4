//! Runs the same load on Portunus and on etcd in one run and reports ratios.
//!
//! ```text
//!  command ──▶ compare ──▶ for each round, workload and server:
//!                            cluster   start a new one    (server: one process; access: its
//!                                                          mode and certificates; users)
//!                            workload  fill it, load it   (client: keys; wire: cheap gRPC to an
//!                                                          endpoint; closed_loop: many clients;
//!                                                          answer)
//!                            window    measured time      (usage: CPU and memory of a process)
//!                            report    samples ──▶ tables (lines: JSON; machine: its hardware)
//! ```
//!
//! Called by the `compare` binary. Both servers are measured in the same way from outside: over the
//! network and from `/proc`. [`apiserver`] does the same for API servers (`compare-apiserver`), and
//! [`client_cost`] for client libraries (`compare-client`); [`program`] is what the binaries share.

pub mod access;
pub mod answer;
pub mod apiserver;
pub mod client;
pub mod client_cost;
pub mod closed_loop;
pub mod cluster;
pub mod command;
pub mod compare;
pub mod endpoint;
pub mod lines;
pub mod machine;
pub mod mode;
pub mod program;
pub mod report;
pub mod server;
pub mod usage;
pub mod users;
pub mod window;
pub mod wire;
pub mod workload;
