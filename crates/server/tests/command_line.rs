//! The binary as a person meets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

fn portunus(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_portunus"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = portunus(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(args: &[&str]) -> String {
    let output = portunus(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn help_names_flags_and_gates_and_the_version_is_etcds_first() {
    let help = stdout(&["--help"]);
    assert!(help.contains("--listen-client-urls"), "{help}");
    assert!(help.contains("FastLeaseKeepAlive=true|false"), "{help}");
    let (_, of_cluster) = help
        .split_once("(--cluster-feature-gates), which all members decide together:\n")
        .expect(&help);
    for gate in [
        "AllAlpha=true|false (ALPHA - default=false)",
        "LeaseCheckpoint=true|false (ALPHA - default=false)",
        "LogCompression=true|false (ALPHA - default=false)",
    ] {
        assert!(of_cluster.lines().any(|line| line.trim() == gate), "{help}");
    }
    assert!(
        !help.contains("--cert-file"),
        "what does not work is not offered: {help}"
    );
    let version = stdout(&["--version"]);
    assert!(version.starts_with("etcd Version: 3.8.0\n"), "{version}");
}

/// Proves: G89
#[test]
fn the_list_is_readable_by_people_and_programs() {
    let table = stdout(&["gates", "list", "--feature-gates", "PriorityRequest=true"]);
    assert!(table.contains("PriorityRequest"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["gates", "list", "-w", "json"])).unwrap();
    assert!(json["features"].as_array().unwrap().len() > 5);
    assert!(stdout(&["gates", "list", "-w", "markdown"]).starts_with("| Feature |"));
}

/// Proves: S2-A1
#[test]
fn both_spellings_of_the_emulation_flag_work() {
    for flag in ["--emulated-version", "--emulation-version"] {
        let text = stdout(&["gates", "explain", "FastLeaseKeepAlive", flag, "3.6"]);
        assert!(
            text.contains("is off: it does not exist before 3.7"),
            "{text}"
        );
    }
}

/// Proves: S2-1, S2-A11
#[test]
fn refusals_are_one_line_that_says_what_to_do() {
    for (args, expected) in [
        (
            &["--emulated-version", "3.9"][..],
            "choose one from 3.5 to 3.8",
        ),
        (&["--emulated-version", "3.4"], "choose one from 3.5 to 3.8"),
        (&["--emulated-version", "3.7.2"], "write 3.7"),
        (&["--emulated-version", "new"], "write it as major.minor"),
        (&["--feature-gates", "Prioritty=true"], "unknown feature"),
        (
            &["--feature-gates", "LeaseCheckpoint=true"],
            "it is a cluster feature: set it with --cluster-feature-gates",
        ),
        (
            &["--feature-gates", "PriorityRequest=maybe"],
            "use true or false",
        ),
    ] {
        let mut all = vec!["gates", "list"];
        all.extend(args);
        let text = refusal(&all);
        assert!(text.contains(expected), "{text}");
        assert!(text.starts_with("portunus: "), "{text}");
    }
    assert!(refusal(&["gates", "explain", "Nobody"]).contains("unknown feature"));
}

#[test]
fn an_explanation_as_json() {
    let text = stdout(&["gates", "explain", "LeaseCheckpointPersist", "-w", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["level"], "cluster");
    assert_eq!(json["needs"][0]["name"], "LeaseCheckpoint");
}
