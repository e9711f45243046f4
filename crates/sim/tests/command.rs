//! The command, as far as it goes without a server. With one it is tested where the server
//! is: `crates/server/tests/durability.rs`.
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
fn a_failure_names_the_seed_the_reason_and_the_kept_directory() {
    let (output, stderr) = torture(&["--portunus", "/nowhere/portunus", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--seed 7"), "{stderr}");
    assert!(stderr.contains("/nowhere/portunus"), "{stderr}");
    let (_, kept) = stderr.rsplit_once("kept in ").unwrap();
    std::fs::remove_dir_all(kept.trim()).unwrap();
}

#[test]
fn a_member_that_ends_by_itself_is_shown_with_what_it_said() {
    let (output, stderr) = torture(&["--portunus", "/bin/false", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("ended by itself") || stderr.contains("does not serve"),
        "{stderr}"
    );
    let (_, kept) = stderr.rsplit_once("kept in ").unwrap();
    std::fs::remove_dir_all(kept.trim()).unwrap();
}
