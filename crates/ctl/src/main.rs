//! The `portctl` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    portunus_ctl::run()
}
