//! Builds the Go programs of this repository that use modules of Kubernetes or etcd.
//!
//! `scripts/go-program` builds them; it needs Go and a module proxy. A test without them is skipped.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::go::{NO_GO_VARIABLE, found_or_skipped};
use crate::program::workspace_root;

/// The script that builds the programs.
pub const SCRIPT: &str = "scripts/go-program";

/// Builds a program, such as `kubectl`, unless it was built before; returns its path.
///
/// # Errors
/// Why it cannot be built: the last line of the script.
pub fn build(name: &str) -> Result<PathBuf, String> {
    if std::env::var_os(NO_GO_VARIABLE).is_some() {
        return Err(format!("{NO_GO_VARIABLE} is set"));
    }
    let output = Command::new(workspace_root().join(SCRIPT))
        .arg(name)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{SCRIPT} cannot be run: {error}"))?;
    let last_line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().last().unwrap_or_default().to_owned()
    };
    match output.status.success() {
        true => Ok(PathBuf::from(last_line(&output.stdout))),
        false => Err(last_line(&output.stderr)),
    }
}

/// Builds a program, or prints a notice that the test is skipped. With `PORTUNUS_REQUIRE_GO` in the
/// environment the test fails instead.
#[must_use]
pub fn build_for_test(name: &str, test: &str) -> Option<PathBuf> {
    found_or_skipped(build(name), test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_program_is_refused_with_the_line_of_the_script() {
        if std::env::var_os(NO_GO_VARIABLE).is_none() {
            let why = build("no-such-program").unwrap_err();
            assert!(why.contains("no-such-program is not known"), "{why}");
        }
    }
}
