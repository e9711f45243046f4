//! `version`: the versions of this program and of its etcd API.

use crate::outcome::{Failure, write_out};

/// The version of etcd's API this program was written for.
const API_VERSION: &str = "3.8";

/// Runs the command.
pub fn run() -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    write_out(format!("portctl version: {version}\nAPI version: {API_VERSION}\n").as_bytes())
}
