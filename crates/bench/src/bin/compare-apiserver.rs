//! The `compare-apiserver` binary.

use std::process::ExitCode;

use clap::Parser;
use portunus_bench::apiserver::command::Command;
use portunus_bench::program;

fn main() -> ExitCode {
    program::run("compare-apiserver", Command::parse().run())
}
