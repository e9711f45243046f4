//! What the tests of the server have in common, beyond the test kit: requests, loads and checks
//! of their answers.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod any_bytes;
pub mod gates;
pub mod leader_snapshot;
pub mod load;
pub mod requests;
pub mod stored;
pub mod versions;
pub mod watching;

use std::net::SocketAddr;
use std::process::Command;

pub use portunus_testkit::client::{Clients, clients_of, connect};
pub use portunus_testkit::http::{HttpAnswer, http_at};
pub use portunus_testkit::process::Process;
pub use portunus_testkit::standalone::{READY, Server, data_dir, launch, member_flags};
pub use portunus_testkit::wait::{POLL_INTERVAL, WAIT_MAX, eventually, soon};
pub use portunus_testkit::{cluster, held_thread, proxy, random};

use portunus_testkit::ports;
use portunus_testkit::program::Program;
use tonic::{Code, Status};

/// Returns the binary under test, without the environment variables of etcd.
pub fn portunus() -> Command {
    Program::portunus().command()
}

/// Returns an unused address, for programs that need one in advance.
pub fn free_address() -> SocketAddr {
    ports::free_address().unwrap()
}

/// Returns the code and text of a refusal.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String) {
    let status = result.expect_err("the request must be refused");
    (status.code(), status.message().to_owned())
}
