//! The `torture` command without a server. `crates/server/tests/durability.rs` tests the run
//! with a server.
#![allow(missing_docs, clippy::unwrap_used)]

use std::process::{Command, Output};

fn torture(args: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, stderr)
}

#[test]
fn failure_names_seed_reason_and_kept_directory() {
    let (output, stderr) = torture(&["--portunus", "/nowhere/portunus", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--seed 7"), "{stderr}");
    assert!(stderr.contains("/nowhere/portunus"), "{stderr}");
    let (_, kept) = stderr.rsplit_once("kept in ").unwrap();
    std::fs::remove_dir_all(kept.trim()).unwrap();
}

#[test]
fn member_that_exits_early_is_reported() {
    let (output, stderr) = torture(&["--portunus", "/bin/false", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("exited unexpectedly") || stderr.contains("does not serve"),
        "{stderr}"
    );
    let (_, kept) = stderr.rsplit_once("kept in ").unwrap();
    std::fs::remove_dir_all(kept.trim()).unwrap();
}
