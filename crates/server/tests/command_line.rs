//! The command line of the binary.
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
        !help.contains("--discovery-srv"),
        "what does not work is not offered: {help}"
    );
    let version = stdout(&["--version"]);
    assert!(version.starts_with("etcd Version: 3.8.0\n"), "{version}");
}

/// Proves: G89
#[test]
fn gate_list_prints_as_table_and_json() {
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
fn refusal_is_one_line_with_the_remedy() {
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
        (
            &["--cluster-feature-gates", "Prioritty=true"],
            "--cluster-feature-gates cannot be applied: unknown feature",
        ),
        (
            &["--cluster-feature-gates", "LeaseCheckpoint=maybe"],
            "--cluster-feature-gates cannot be read",
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

/// The flags are those of a member, and the value is the decision of a cluster of that member.
#[test]
fn explain_takes_the_flags_of_cluster_features() {
    let explained = |flags: &[&str], name: &str| {
        let mut args = vec!["gates", "explain", name];
        args.extend(flags);
        stdout(&args)
    };
    let wants = "--cluster-feature-gates=LogCompression=true";
    let on = explained(&[wants], "LogCompression");
    assert!(
        on.starts_with("LogCompression (cluster feature) is on: "),
        "{on}"
    );
    // On, but not used for writing as long as 3.7 must be able to read the data.
    let note = "  note      even while LogCompression is on, a member with minimum compatibility \
                version 3.7 writes nothing with it: only 3.8 and later can read that\n";
    assert!(on.contains(note), "{on}");
    let advice = "  change    start the members with --min-compatibility-version=3.8\n";
    assert!(on.contains(advice), "{on}");
    let json = explained(&[wants, "-w", "json"], "LogCompression");
    let field = r#""min_compatibility_version": "3.7""#;
    assert!(json.contains(field), "{json}");
    let newest_only = "--min-compatibility-version=3.8";
    let written = explained(&[wants, newest_only], "LogCompression");
    assert!(!written.contains("writes nothing"), "{written}");
    let absent = explained(&["--emulated-version=3.7"], "LogCompression");
    assert!(!absent.contains("writes nothing"), "{absent}");
    let vetoed = "--cluster-feature-gates=LogCompression=false";
    let off = explained(&[vetoed], "LogCompression");
    assert!(off.contains("(cluster feature) is off"), "{off}");
    assert!(off.contains("false by member this-member"), "{off}");
    let unproposed = explained(
        &[wants, "--feature-gates=ClusterFeatureGate=false"],
        "LogCompression",
    );
    assert!(
        unproposed.contains("is off: this-member published no proposal"),
        "{unproposed}"
    );
    // A member starts with a flag that needs another one, and the feature stays off.
    let needy = "--cluster-feature-gates=LeaseCheckpointPersist=true";
    let off = explained(&[needy], "LeaseCheckpointPersist");
    assert!(
        off.contains("it needs LeaseCheckpoint, which is off"),
        "{off}"
    );
    // The cluster's flags do not affect a server feature.
    let server = explained(&[wants], "FastLeaseKeepAlive");
    assert_eq!(server, explained(&[], "FastLeaseKeepAlive"));
}

#[test]
fn list_takes_the_flags_of_cluster_features() {
    let wants = "--cluster-feature-gates=LeaseCheckpoint=true";
    let list = stdout(&["gates", "list", wants]);
    let row = list
        .lines()
        .find(|line| line.contains("LeaseCheckpoint "))
        .expect(&list);
    assert!(row.contains("  on   ALPHA"), "{list}");
}

#[test]
fn explain_prints_json() {
    let text = stdout(&["gates", "explain", "LeaseCheckpointPersist", "-w", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["level"], "cluster");
    assert_eq!(json["needs"][0]["name"], "LeaseCheckpoint");
}
