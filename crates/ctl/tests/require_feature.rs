//! `--require-feature` on data commands.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use portunus_testkit::program::Program;
use support::cluster::{Cluster, MECHANISM, WANTS_IT};
use support::{Ran, Server, run};

/// Every data command and its standard input. The last ones need a key or a lease to succeed.
const COMMANDS: [(&str, &str); 12] = [
    ("put a b", ""),
    ("get a", ""),
    ("get a --stream", ""),
    ("txn", "\nput a b\n\n\n"),
    ("compaction 2", ""),
    ("watch a --rev 3 -- false", ""),
    ("del a", ""),
    ("lease grant 60", ""),
    ("lease list", ""),
    ("lease timetolive 1", ""),
    ("lease keep-alive --once 1", ""),
    ("lock name true", ""),
];

/// Data commands that do not end while the feature is on.
const ENDLESS: [(&str, &str); 3] = [
    ("elect name proposal", ""),
    ("elect name --listen", ""),
    ("make-mirror 127.0.0.1:1", ""),
];

/// Runs a command that requires a feature.
fn requiring(cluster: &Cluster, feature: &str, (line, input): (&str, &str)) -> Ran {
    let mut command = cluster.command();
    command.args(["--require-feature", feature]);
    run(command.args(line.split(' ')), input.as_bytes())
}

/// The server refuses every data command while the feature is off, and changes nothing; once the
/// feature is on the same commands run.
///
/// Proves: S0-45
#[test]
fn data_commands_run_only_while_the_required_feature_is_on() {
    let mut cluster = Cluster::start(&[&[MECHANISM]]);
    for command in COMMANDS.into_iter().chain(ENDLESS) {
        let refused = requiring(&cluster, "LeaseCheckpoint", command);
        assert!(!refused.success, "{command:?}: {refused:?}");
        assert!(
            refused.err.contains("LeaseCheckpoint"),
            "{command:?}: {refused:?}"
        );
        assert_eq!(refused.out, "", "{command:?}");
    }
    assert_eq!(cluster.portctl(["get", "", "--prefix"]).ok(), "");

    cluster.restart(0, &[MECHANISM, WANTS_IT]);
    cluster.until(&["endpoint", "featuregate", "LeaseCheckpoint"], |ran| {
        ran.out == "true\n"
    });
    for command in COMMANDS {
        let ran = requiring(&cluster, "LeaseCheckpoint", command);
        assert!(!ran.err.contains("LeaseCheckpoint"), "{command:?}: {ran:?}");
        match command.0 {
            // The watch ends with the command it runs for the event.
            "watch a --rev 3 -- false" => assert!(ran.out.starts_with("PUT\na\n"), "{ran:?}"),
            "lease keep-alive --once 1" => assert!(ran.err.contains("lease not found"), "{ran:?}"),
            _ => assert!(ran.success, "{command:?}: {ran:?}"),
        }
    }
    refuses_what_is_still_off(&cluster);
}

/// Checks requirements with LeaseCheckpoint on and LogCompression off.
fn refuses_what_is_still_off(cluster: &Cluster) {
    let both = [
        "--require-feature=LogCompression",
        "put",
        "--require-feature=LeaseCheckpoint",
        "c",
        "d",
    ];
    let refused = cluster.portctl(both);
    assert!(refused.err.contains("LogCompression"), "{refused:?}");

    let with_variable = |arguments: &[&str]| {
        let mut command = cluster.command();
        command.env("PORTCTL_REQUIRE_FEATURE", "LeaseCheckpoint,LogCompression");
        run(command.args(arguments), b"")
    };
    let refused = with_variable(&["get", "a"]);
    assert!(refused.err.contains("LogCompression"), "{refused:?}");
    // Commands without data still run, so that the cause can be found.
    with_variable(&["endpoint", "health"]).ok();
}

/// Go etcd ignores the metadata, so a write with it would be done.
#[test]
fn server_without_feature_gates_is_refused() {
    const TEST: &str = "require_feature::server_without_feature_gates_is_refused";
    let Some(program) = Program::etcd(TEST) else {
        return;
    };
    let etcd = Server::start(&program);
    for arguments in [
        &["put", "a", "b", "--require-feature=LeaseCheckpoint"][..],
        &["watch", "a", "--require-feature=LeaseCheckpoint"],
    ] {
        let refused = etcd.portctl(arguments);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        let message = format!("{} does not know feature gates", etcd.endpoint());
        assert!(refused.err.contains(&message), "{refused:?}");
    }
    assert_eq!(etcd.portctl(["get", "a"]).ok(), "");
}
