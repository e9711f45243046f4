//! Every command of `portctl` runs against Portunus and against Go's etcd.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use portunus_testkit::program::{Kind, Program};
use rustix::process::Signal;
use support::running::Running;
use support::{Server, for_each_server, free_peer_url};

/// Exit codes of a command against Portunus and against etcd.
type Codes = [i32; 2];

const OK: Codes = [0, 0];

/// Commands that run until they are interrupted, with the exit codes that they then have; -1: the
/// signal ends them.
const UNTIL_INTERRUPTED: &[(&[&str], Codes)] = &[
    (&["watch", "a", "--rev=1"], [-1, -1]),
    (&["lease", "keep-alive", "LEASE"], [-1, -1]),
    (&["lock", "name"], OK),
    (&["elect", "name", "proposal"], OK),
    (&["gate", "watch"], [-1, 1]),
    (&["check", "perf"], [5, 5]),
    (&["check", "datascale", "--load=xl"], [5, 5]),
    (
        &["make-mirror", "ENDPOINT", "--prefix=a", "--dest-prefix=m"],
        [-1, -1],
    ),
];

/// The other commands, in an order in which each finds what it needs. The upper-case words are
/// replaced. 7 is a plan that is blocked. Commands about feature gates need a server that has them.
const SCRIPT: &[(&[&str], Codes)] = &[
    (&["put", "a", "1"], OK),
    (&["get", "a"], OK),
    (&["del", "b"], OK),
    (&["txn"], OK),
    (&["lease", "grant", "600"], OK),
    (&["lease", "list"], OK),
    (&["lease", "timetolive", "LEASE"], OK),
    (&["member", "list"], OK),
    (
        &["member", "add", "m2", "--peer-urls=PEER", "--learner"],
        OK,
    ),
    // A learner that has never run has no data.
    (&["member", "promote", "ADDED"], [1, 1]),
    (&["member", "update", "ADDED", "--peer-urls=OTHER"], OK),
    (&["member", "remove", "ADDED"], OK),
    (&["move-leader", "MEMBER"], OK),
    (&["downgrade", "validate", "LOWER"], OK),
    (&["downgrade", "enable", "LOWER"], OK),
    (&["downgrade", "status"], OK),
    (&["downgrade", "cancel"], OK),
    (&["endpoint", "health"], OK),
    (&["endpoint", "status"], OK),
    (&["endpoint", "hashkv"], OK),
    (&["endpoint", "featuregate", "LeaseCheckpoint"], [0, 1]),
    (&["gate", "list"], [0, 1]),
    (&["gate", "status"], [0, 1]),
    (&["gate", "explain", "LeaseCheckpoint"], OK),
    (&["gate", "plan", "upgrade", "3.8"], OK),
    (&["gate", "plan", "downgrade", "LOWER"], OK),
    (&["gate", "plan", "cancel"], [7, 7]),
    (&["gate", "plan", "restart", "m1"], OK),
    (&["gate", "plan", "add"], OK),
    (&["gate", "plan", "remove", "m1"], OK),
    (&["gate", "plan", "promote", "m1"], [7, 7]),
    (&["gate", "history"], [0, 1]),
    (
        &["api", "explain", "olmconfigs.v1.operators.coreos.com"],
        OK,
    ),
    (&["api", "plan", "--to-emulated-version=1.36"], OK),
    (&["alarm", "list"], OK),
    (&["alarm", "disarm"], OK),
    (&["defrag"], OK),
    (&["compaction", "2"], OK),
    (&["snapshot", "save", "FILE"], OK),
    (&["snapshot", "status", "FILE"], OK),
    (&["snapshot", "restore", "FILE", "--data-dir=RESTORED"], OK),
    (&["hashkv", "FILE"], OK),
    (&["role", "add", "r"], OK),
    (&["role", "list"], OK),
    (&["role", "grant-permission", "r", "read", "a"], OK),
    (&["role", "get", "r"], OK),
    (&["role", "revoke-permission", "r", "a"], OK),
    (&["user", "add", "root:pw"], OK),
    (&["user", "add", "u:pw"], OK),
    (&["user", "list"], OK),
    (&["user", "grant-role", "u", "r"], OK),
    (&["user", "get", "u"], OK),
    (&["user", "revoke-role", "u", "r"], OK),
    (&["user", "passwd", "u", "--interactive=false"], OK),
    (&["user", "delete", "u"], OK),
    (&["role", "delete", "r"], OK),
    (&["user", "grant-role", "root", "root"], OK),
    (&["auth", "status"], OK),
    (&["auth", "enable"], OK),
    (&["auth", "disable", "--user=root:pw"], OK),
    (&["check", "kubernetes", "--keep-history"], OK),
    (&["options"], OK),
    (&["version"], OK),
    (&["completion", "bash"], OK),
    (&["lease", "revoke", "LEASE"], OK),
];

/// On the data directory of the stopped server; `migrate` is for directories of Portunus.
const STOPPED: &[(&[&str], Codes)] = &[
    (&["defrag", "--data-dir=STOPPED"], OK),
    (
        &["migrate", "--data-dir=STOPPED", "--target-version=3.6"],
        [0, 1],
    ),
];

/// The words that a test replaces in command lines.
struct Words(Vec<(&'static str, String)>);

impl Words {
    fn arguments(&self, line: &[&str]) -> Vec<String> {
        let replaced = line.iter().map(|word| {
            let mut word = (*word).to_owned();
            for (name, value) in &self.0 {
                word = word.replace(name, value);
            }
            word
        });
        replaced.collect()
    }
}

fn words(program: &Program, server: &Server) -> Words {
    let path = |name: &str| server.path(name).to_str().unwrap().to_owned();
    let members = server.portctl(["member", "list"]).ok();
    let lower = match program.kind {
        Kind::Portunus => "3.7",
        Kind::Etcd => "3.6",
    };
    Words(vec![
        ("ENDPOINT", server.endpoint()),
        ("MEMBER", members.split(", ").next().unwrap().to_owned()),
        ("PEER", free_peer_url()),
        ("OTHER", free_peer_url()),
        ("LOWER", lower.to_owned()),
        ("FILE", path("saved.db")),
        ("RESTORED", path("restored")),
    ])
}

/// Returns the command without flags and arguments.
fn leaf_of<'l>(leaves: &'l BTreeSet<String>, line: &[&str]) -> &'l str {
    let line = line.join(" ") + " ";
    let matching = leaves
        .iter()
        .filter(|leaf| line.starts_with(&format!("{leaf} ")));
    matching.max_by_key(|leaf| leaf.len()).unwrap()
}

fn leaves() -> BTreeSet<String> {
    fn collect(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name());
            match below.has_subcommands() {
                true => collect(below, &path, found),
                false => drop(found.insert(path.trim_start().to_owned())),
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(&portunus_ctl::command_line(), "", &mut found);
    found
}

#[test]
fn every_command_runs_against_portunus_and_etcd() {
    let leaves = leaves();
    let lines = [SCRIPT, UNTIL_INTERRUPTED, STOPPED].concat();
    let tested: BTreeSet<String> = lines
        .iter()
        .map(|(line, _)| leaf_of(&leaves, line).to_owned())
        .collect();
    let untested: Vec<_> = leaves.difference(&tested).collect();
    assert!(untested.is_empty(), "{untested:?}");

    for_each_server("every_command::every_command_runs", |program| {
        let problems = run_all(program);
        assert!(problems.is_empty(), "{problems:#?}");
    });
}

/// Runs every command and returns those with another exit code.
fn run_all(program: &Program) -> Vec<String> {
    let of_kind = |codes: Codes| codes[usize::from(program.kind == Kind::Etcd)];
    let mut server = Server::start(program);
    let mut words = words(program, &server);
    let mut problems = Vec::new();
    let interrupted_after = SCRIPT.iter().position(|(line, _)| line[1..] == ["list"]);
    for (number, (line, codes)) in SCRIPT.iter().enumerate() {
        // Between the grant of the lease and its revocation.
        if Some(number) == interrupted_after {
            problems.extend(run_until_interrupted(&server, &words, of_kind));
        }
        let input = match line[0] {
            "txn" => "\nput a 2\n\n\n",
            "user" => "new\nnew\n",
            _ => "",
        };
        let ran = server.portctl_with_input(words.arguments(line), input.as_bytes());
        if ran.code != Some(of_kind(*codes)) {
            problems.push(format!("{line:?}: {ran:?}"));
        }
        let second = |text: &str| text.split_whitespace().nth(1).map(str::to_owned);
        match line[..2.min(line.len())] {
            ["lease", "grant"] => words.0.push(("LEASE", second(&ran.out).unwrap())),
            ["member", "add"] => words.0.push(("ADDED", second(&ran.out).unwrap())),
            _ => {}
        }
    }
    let stopped = server.stop().to_str().unwrap().to_owned();
    words.0.push(("STOPPED", stopped));
    for (line, codes) in STOPPED {
        let ran = server.portctl(words.arguments(line));
        if ran.code != Some(of_kind(*codes)) {
            problems.push(format!("{line:?}: {ran:?}"));
        }
    }
    problems
}

/// Starts the commands that do not end, and interrupts each after its first line.
fn run_until_interrupted(
    server: &Server,
    words: &Words,
    of_kind: impl Fn(Codes) -> i32,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (line, codes) in UNTIL_INTERRUPTED {
        let mut command = server.command(env!("CARGO_BIN_EXE_portctl"));
        let mut running = Running::start(command.args(words.arguments(line)));
        let copied = || server.portctl(["get", "m", "--prefix"]).ok() != "";
        let started = match line {
            // These print nothing at first.
            ["check", "perf"] | ["gate", "watch"] => {
                running.line_within(std::time::Duration::from_secs(2));
                true
            }
            ["make-mirror", ..] => {
                portunus_testkit::wait::until_blocking("mirrored key", || {
                    copied().then_some(()).ok_or(())
                });
                true
            }
            _ => !running.line().is_empty(),
        };
        running.signal_if_running(Signal::INT);
        let ran = running.ended();
        if !started || ran.code.unwrap_or(-1) != of_kind(*codes) {
            problems.push(format!("{line:?}: {ran:?}"));
        }
    }
    problems
}
