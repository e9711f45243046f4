//! What `portctl` does with its arguments and environment before any server matters.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use support::{portctl, run};

#[track_caller]
fn refused(arguments: &[&str], environment: &[(&str, &str)], code: i32, message: &str) {
    let mut command = portctl();
    command.args(arguments).envs(environment.iter().copied());
    let ran = run(&mut command, b"");
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert_eq!(ran.out, "");
    assert!(ran.err.contains(message), "{ran:?}");
}

#[test]
fn unsupported_options_are_refused() {
    refused(
        &["get", "a", "-d", "example.com"],
        &[],
        4,
        "portctl has no DNS discovery",
    );
    refused(
        &["get", "a"],
        &[("ETCDCTL_DISCOVERY_SRV", "example.com")],
        4,
        "ETCDCTL_DISCOVERY_SRV",
    );
    let socket = "unix://localhost:2379";
    let message = "none of host:port";
    refused(&["get", "a", "--endpoints", socket], &[], 128, message);
}

#[test]
fn invalid_arguments_have_etcdctl_texts_and_exit_codes() {
    for (arguments, code, message) in [
        (
            &["get"][..],
            128,
            "Error: get command needs one argument as key",
        ),
        (
            &["get", "a", "--prefix", "--from-key"],
            128,
            "cannot be set at the same time",
        ),
        (
            &["get", "a", "--order", "sideways"],
            4,
            "Error: bad sort order sideways",
        ),
        (
            &["get", "a", "-w", "yaml"],
            4,
            "Error: unsupported output format",
        ),
        (
            &["get", "a", "--dial-timeout", "1x"],
            1,
            "time: unknown unit \"x\" in duration \"1x\"",
        ),
        (
            &["put"],
            128,
            "Error: put command needs 1 argument and input from stdin",
        ),
        (
            &["lease", "revoke", "xyz"],
            128,
            "strconv.ParseInt: parsing \"xyz\": invalid syntax",
        ),
        (
            &["snapshot", "restore"],
            128,
            "snapshot restore requires exactly one argument",
        ),
        (
            &["snapshot", "restore", "x", "--bump-revision=5"],
            128,
            "--mark-compacted required",
        ),
        (
            &["watch", "a", "--"],
            128,
            "found separator --, but no commands",
        ),
        (&["frobnicate"], 1, "unrecognized subcommand"),
        (&["lock"], 128, "lock takes a lock name argument"),
        (&["elect", "a"], 128, "no proposal argument but -l not set"),
        (&["get", "a", "--frobnicate"], 1, "unexpected argument"),
    ] {
        refused(arguments, &[], code, message);
    }
}

#[test]
fn gate_arguments_are_checked_before_any_request() {
    for (arguments, code, message) in [
        (
            &["endpoint", "featuregate"][..],
            128,
            "endpoint featuregate command needs one argument as feature name",
        ),
        (&["gate", "status", "A", ""], 128, "a feature name is empty"),
        (
            &["gate", "explain", "A", "B"],
            128,
            "gate explain command needs one argument as feature name",
        ),
        (
            &["gate", "list", "--consistency=x"],
            4,
            "unknown consistency flag \"x\"",
        ),
        (&["gate", "plan", "upgrade"], 128, "VERSION not provided"),
        (
            &["gate", "plan", "upgrade", "soon"],
            128,
            "\"soon\" is not a version",
        ),
        (
            &["gate", "plan", "upgrade", "99.9"],
            128,
            "this portctl knows features up to version 3.8: use the portctl of 99.9",
        ),
        (&["gate", "plan", "remove"], 128, "MEMBER not provided"),
        (
            &["gate", "plan", "restart", "m1", "m2"],
            128,
            "too many arguments",
        ),
        (
            &["gate", "plan", "add", "--cluster-feature-gates=A=perhaps"],
            128,
            "perhaps",
        ),
    ] {
        refused(arguments, &[], code, message);
    }
}

#[test]
fn unreachable_server_is_reported_as_in_etcdctl_with_its_endpoints() {
    let endpoint = support::free_address().to_string();
    let mut command = portctl();
    command.args([
        "get",
        "a",
        "--command-timeout=300ms",
        "--endpoints",
        &endpoint,
    ]);
    let ran = run(&mut command, b"");
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.ends_with("Error: context deadline exceeded\n"),
        "{ran:?}"
    );
    assert!(
        ran.err
            .contains(&format!("{endpoint} is not reachable: Connection refused")),
        "{ran:?}"
    );
}

#[test]
fn help_and_version_and_completion_need_no_server() {
    let say = |arguments: &[&str]| run(portctl().args(arguments), b"").ok();
    assert!(say(&["version"]).starts_with("portctl version: "));
    assert!(say(&["version"]).ends_with("API version: 3.8\n"));
    assert!(say(&["lease"]).contains("keep-alive"));
    assert!(say(&["get", "--help"]).contains("--print-value-only"));
    assert!(say(&["gate", "plan", "--help"]).contains("exits with 7 if something blocks it"));
    assert!(say(&["completion", "bash"]).contains("portctl"));
}
