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
//! `go/` reads and writes values as Go does, because etcdctl's output depends on it. The
//! program calls [`run`], which never panics and never leaves a half-written file under its final
//! name; the test that writes the reference of commands reads [`command_line`],
//! [`usage_of`] and [`examples_of`].

mod cli;
mod command;
mod diagnose;
mod examples;
mod gates;
mod globals;
mod go;
mod help;
mod identity;
mod line_args;
mod metrics;
mod next_step;
mod offline;
mod outcome;
mod peer_urls;
mod print;
mod prompt;
mod required;
mod restore;
mod settings;
mod signals;
mod terminal;
mod transport;
mod txn;

pub use cli::{command_line, run};
pub use examples::of as examples_of;
pub use help::usage as usage_of;
