//! `portctl` with several endpoints of which some are of no use.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use support::cluster::{Cluster, MECHANISM};
use support::{Ran, portctl, run};

/// Commands that need an answer from one member only, and those that ask all of them.
const COMMANDS: [&[&str]; 8] = [
    &["put", "key", "value"],
    &["get", "key"],
    &["member", "list"],
    &["gate", "list"],
    &["gate", "status"],
    &["gate", "history"],
    &["gate", "explain", "LeaseCheckpoint"],
    &["gate", "plan", "restart", "m1"],
];

fn portctl_at(endpoints: &str, arguments: &[&str]) -> Ran {
    let mut command = portctl();
    command.env("PORTCTL_ENDPOINTS", endpoints);
    run(command.args(arguments), b"")
}

#[test]
fn endpoint_that_accepts_and_never_answers_fails_no_command() {
    let cluster = Cluster::start(&[&[MECHANISM]]);
    // The kernel accepts connections; nothing reads from them.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let hung = hung.local_addr().unwrap();
    let endpoints = format!("{hung},{}", cluster.endpoints());
    for command in COMMANDS {
        portctl_at(&endpoints, command).ok();
    }
    // A command that asks every endpoint waits for the dial timeout, not for its own.
    let began = Instant::now();
    portctl_at(&endpoints, &["--command-timeout=60s", "gate", "list"]).ok();
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn learner_among_the_endpoints_fails_no_command() {
    let mut cluster = Cluster::start(&[&[MECHANISM]]);
    let voter = cluster.endpoints();
    cluster.add_learner("m2", &[MECHANISM]);
    let learner = cluster.members[1].endpoint();
    let alone = portctl_at(&learner, &["put", "key", "value"]);
    assert!(alone.err.contains("not supported for learner"), "{alone:?}");
    // Which endpoint is ready first differs from run to run.
    for _ in 0..5 {
        for command in COMMANDS {
            portctl_at(&format!("{learner},{voter}"), command).ok();
        }
    }
}

#[test]
fn timeout_without_quorum_reports_members_and_the_way_to_read() {
    let mut cluster = Cluster::start(&[&[MECHANISM], &[MECHANISM]]);
    cluster.portctl(["put", "key", "value"]).ok();
    let endpoints = cluster.endpoints();
    let missing = cluster.members[1].endpoint();
    cluster.members[1].kill();
    cluster.until(&["endpoint", "status"], |ran| {
        ran.out.contains("etcdserver: no leader")
    });
    let timed_out = portctl_at(&endpoints, &["--command-timeout=1s", "put", "key", "other"]);
    assert_eq!(timed_out.code, Some(1));
    for expected in [
        "Error: context deadline exceeded",
        "is reachable: etcdserver: no leader, no leader for ",
        &format!("{missing} is not reachable: Connection refused"),
        "--consistency=s",
    ] {
        assert!(timed_out.err.contains(expected), "{timed_out:?}");
    }
    let read = portctl_at(&endpoints, &["get", "key", "--consistency=s"]).ok();
    assert_eq!(read, "key\nvalue\n");
}
