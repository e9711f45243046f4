//! The `compare` binary.

use std::process::ExitCode;

use clap::Parser;
use portunus_bench::command::Command;
use portunus_bench::program;

fn main() -> ExitCode {
    program::run("compare", Command::parse().run())
}
