//! Unchanged etcdctl against the real binary.
//!
//! `portunus_testkit::go` documents where it comes from. Without it the tests print a warning that
//! they proved nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Server, data_dir};
use portunus_testkit::go::{Tool, find_for_test};
use serde_json::Value;

/// etcdctl with a member.
struct Etcdctl {
    program: PathBuf,
    server: Server,
    guard: tempfile::TempDir,
}

impl Etcdctl {
    /// Starts a new member; `None` if there is no etcdctl.
    fn start(test: &str) -> Option<Etcdctl> {
        let program = find_for_test(Tool::Etcdctl, test)?;
        let (guard, dir) = data_dir();
        let server = Server::start(&dir, &["--name=m1"]);
        Some(Etcdctl {
            program,
            server,
            guard,
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--endpoints={}", self.server.url()))
            .arg("--command-timeout=60s")
            .args(args);
        command
    }

    /// Returns its output; it must succeed.
    fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns its error output; it must fail.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.extend(["-w", "json"]);
        serde_json::from_str(&self.run(&all)).unwrap()
    }

    /// Returns its output for this input.
    fn run_with_input(&self, args: &[&str], input: &str) -> String {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn auth_status() {
    let Some(ctl) = Etcdctl::start("auth_status") else {
        return;
    };
    let expected = "Authentication Status: false\nAuthRevision: 1\n";
    assert_eq!(ctl.run(&["auth", "status"]), expected);
    let refused = ctl.refused(&["auth", "enable"]);
    assert!(refused.contains("root user does not exist"), "{refused}");
}

#[test]
fn etcdctl_puts_gets_and_deletes_keys() {
    let Some(ctl) = Etcdctl::start("keys") else {
        return;
    };
    assert_eq!(ctl.run(&["put", "a", "1"]), "OK\n");
    assert_eq!(ctl.run(&["put", "b", "2"]), "OK\n");
    assert_eq!(ctl.run(&["put", "a", "3", "--prev-kv"]), "OK\na\n1\n");
    assert_eq!(ctl.run(&["get", "a"]), "a\n3\n");
    assert_eq!(
        ctl.run(&["get", "", "--prefix", "--keys-only"]),
        "a\n\nb\n\n"
    );
    assert_eq!(
        ctl.run(&["get", "a", "--rev=2", "--print-value-only"]),
        "1\n"
    );
    assert_eq!(
        ctl.run(&[
            "get",
            "",
            "--prefix",
            "--sort-by=MODIFY",
            "--order=DESCEND",
            "--limit=1"
        ]),
        "a\n3\n"
    );
    let counted = ctl.run(&["get", "", "--prefix", "--count-only", "-w", "fields"]);
    assert!(counted.contains("\"Count\" : 2"), "{counted}");
    let json = ctl.json(&["get", "a"]);
    assert_eq!(json["kvs"][0]["version"], 2);
    assert_eq!(json["header"]["revision"], 4);
    assert_eq!(ctl.run(&["del", "a", "--prev-kv"]), "1\na\n3\n");
    assert_eq!(ctl.run(&["del", "a"]), "0\n");
    assert_eq!(ctl.run(&["del", "", "--prefix"]), "1\n");
    let future = ctl.refused(&["get", "a", "--rev=100"]);
    assert!(
        future.contains("required revision is a future revision"),
        "{future}"
    );
}

#[test]
fn etcdctl_runs_transactions() {
    let Some(ctl) = Etcdctl::start("transactions") else {
        return;
    };
    ctl.run(&["put", "a", "1"]);
    let input = "value(\"a\") = \"1\"\n\nput a 2\nget a\n\nput a 3\n\n";
    assert_eq!(
        ctl.run_with_input(&["txn"], input),
        "SUCCESS\n\nOK\n\na\n2\n"
    );
    assert_eq!(ctl.run_with_input(&["txn"], input), "FAILURE\n\nOK\n");
    assert_eq!(ctl.run(&["get", "a"]), "a\n3\n");
}

#[test]
fn etcdctl_compacts_and_hashes() {
    let Some(ctl) = Etcdctl::start("compaction") else {
        return;
    };
    for value in ["1", "2", "3"] {
        ctl.run(&["put", "a", value]);
    }
    let hash = ctl.json(&["endpoint", "hashkv"]);
    assert_eq!(hash[0]["HashKV"]["header"]["revision"], 4);
    assert_eq!(
        ctl.run(&["compaction", "3", "--physical"]),
        "compacted revision 3\n"
    );
    let compacted = ctl.refused(&["get", "a", "--rev=2"]);
    assert!(
        compacted.contains("required revision has been compacted"),
        "{compacted}"
    );
    assert!(ctl.run(&["defrag"]).contains("Finished defragmenting"));
}

#[test]
fn etcdctl_watches_keys() {
    let Some(ctl) = Etcdctl::start("watches") else {
        return;
    };
    ctl.run(&["put", "a", "1"]);
    ctl.run(&["put", "a", "2"]);
    ctl.run(&["del", "a"]);
    let mut child = ctl
        .command(&["watch", "a", "--rev=2", "--prev-kv"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let expected = "PUT a 1 PUT a 1 a 2 DELETE a 2 a";
    let words = expected.split(' ').count();
    let told: Vec<String> = lines.map(Result::unwrap).take(words).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told.join(" ").trim(), expected);
}

#[test]
fn etcdctl_manages_leases() {
    let Some(ctl) = Etcdctl::start("leases") else {
        return;
    };
    let granted = ctl.run(&["lease", "grant", "600"]);
    let id = granted.split(' ').nth(1).unwrap().to_owned();
    assert!(granted.contains("granted with TTL(600s)"), "{granted}");
    assert_eq!(
        ctl.run(&["put", "a", "1", &format!("--lease={id}")]),
        "OK\n"
    );
    let left = ctl.run(&["lease", "timetolive", &id, "--keys"]);
    assert!(
        left.contains("granted with TTL(600s)") && left.contains("attached keys([a])"),
        "{left}"
    );
    assert!(
        ctl.run(&["lease", "keep-alive", "--once", &id])
            .contains("keepalived with TTL(600)")
    );
    assert!(ctl.run(&["lease", "list"]).contains(&id));
    assert!(ctl.run(&["lease", "revoke", &id]).contains("revoked"));
    assert_eq!(ctl.run(&["get", "a"]), "");
    assert!(
        ctl.run(&["lease", "timetolive", &id])
            .contains("already expired")
    );
}

#[test]
fn etcdctl_lists_members_and_endpoints() {
    let Some(ctl) = Etcdctl::start("members") else {
        return;
    };
    let members = ctl.json(&["member", "list"]);
    assert_eq!(members["members"][0]["name"], "m1");
    let health = ctl.command(&["endpoint", "health"]).output().unwrap();
    assert!(health.status.success());
    let status = ctl.json(&["endpoint", "status"]);
    assert_eq!(status[0]["Status"]["version"], "3.8.0");
    assert!(status[0]["Status"]["dbSize"].as_i64().unwrap() > 0);
    let table = ctl.run(&["endpoint", "status", "-w", "table"]);
    assert!(table.contains("ENDPOINT"), "{table}");
    assert_eq!(ctl.run(&["alarm", "list"]), "");
    assert_eq!(ctl.run(&["alarm", "disarm"]), "");
}

#[test]
fn etcdctl_saves_snapshots() {
    let Some(ctl) = Etcdctl::start("snapshots") else {
        return;
    };
    for number in 0..10 {
        ctl.run(&["put", &format!("k{number}"), "v"]);
    }
    let file = ctl.guard.path().join("snapshot.db");
    ctl.run(&["snapshot", "save", file.to_str().unwrap()]);
    portunus_bolt::snapshot::verify_file(&file).unwrap();
    let reader = portunus_bolt::Reader::open(&file).unwrap();
    let summary = portunus_bolt::snapshot::status(&reader).unwrap();
    assert_eq!((summary.revision, summary.total_keys), (11, 10));
}
