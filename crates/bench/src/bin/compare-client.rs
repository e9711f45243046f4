//! The `compare-client` binary.

use std::process::ExitCode;

use clap::Parser;
use portunus_bench::client_cost::command::Command;
use portunus_bench::program;

fn main() -> ExitCode {
    program::run("compare-client", Command::parse().run())
}
