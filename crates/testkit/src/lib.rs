//! What tests of several crates need to run real servers.
//!
//! ```text
//!  Cluster ──▶ Member, Member, … ──▶ Program, Process     several members, with a Network
//!  Server ───────────────────────▶ Program, Process       one member at ports of the system
//! ```
//!
//! | module | concept |
//! | --- | --- |
//! | [`process`], [`held_thread`] | a child process and its log; one of its threads, stopped |
//! | [`program`], [`go`] | the server programs; the Go programs that Portunus is compared with |
//! | [`go_program`] | Go programs of this repository, on modules of Kubernetes |
//! | [`standalone`], [`member`], [`cluster`] | one server; one member of a cluster; several members |
//! | [`proxy`] | the network between members, with links that can fail |
//! | [`client`], [`http`], [`users`] | asking a server; as users of a server with authentication |
//! | [`certificates`] | a CA and the certificates that it issues and revokes |
//! | [`ports`], [`wait`], [`random`] | free ports; conditions with a deadline; repeatable choices |
//!
//! Only tests, the benchmark and the torture command depend on this crate; nothing that ships
//! does. Functions panic where a test would fail, except those that return a `Result` for the two
//! commands.

// A failing test panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod certificates;
pub mod client;
pub mod cluster;
pub mod go;
pub mod go_program;
pub mod held_thread;
pub mod http;
pub mod member;
pub mod ports;
pub mod process;
pub mod program;
pub mod proxy;
pub mod random;
pub mod standalone;
pub mod users;
pub mod wait;
