//! `portctl`, the command line: etcdctl's and etcdutl's commands, flags, environment, exit codes
//! and output formats, so that scripts written for them go on working.
//!
//! ```text
//!  arguments, environment ──▶ cli, globals ──▶ command/* ──▶ client ──▶ server
//!                                                 │ Answer
//!                                                 ▼
//!                                              print/* ──▶ text exactly as etcdctl prints it
//!
//!  replies of the members ──▶ gates/* ──▶ why a feature has its value, what a change would do
//!
//!  snapshot file ──▶ restore/* ──▶ a data directory in etcd's layout (needs no server)
//! ```
//!
//! `go/` reads and writes values as Go does, because etcdctl's output depends on it. Only [`run`]
//! is called from outside; it never panics and never leaves a half-written file under its final
//! name.

mod cli;
mod command;
mod diagnose;
mod gates;
mod globals;
mod go;
mod identity;
mod line_args;
mod outcome;
mod peer_urls;
mod print;
mod prompt;
mod required;
mod restore;
mod settings;
mod transport;
mod txn;

pub use cli::run;
