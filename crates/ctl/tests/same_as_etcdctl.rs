//! The same commands through etcdctl and through `portctl`, against one server: exit code,
//! standard output and error must be the same bytes.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::Path;
use std::process::Command;

use portunus_testkit::program::Program;
use support::{Ran, Server, clean, etcdctl, for_each_server, run};

/// What differs between two runs of anything: how long it took.
fn without_times(text: &str) -> String {
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        match line.find("took").or_else(|| line.find("\"Took\"")) {
            Some(start) => shown.push_str(&format!("{}…\n", &line[..start])),
            None => shown.push_str(line),
        }
    }
    shown
}

/// etcdctl logs on standard error what it then prints as an error.
fn without_log_lines(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines
        .filter(|line| !line.starts_with("{\"level\""))
        .collect()
}

#[test]
fn answers_and_refusals_print_as_in_etcdctl() {
    const TEST: &str = "same_as_etcdctl::answers_and_refusals_print_as_in_etcdctl";
    let Some(etcdctl) = etcdctl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| answers_are_the_same(program, &etcdctl));
}

fn answers_are_the_same(program: &Program, etcdctl: &Path) {
    let server = Server::start(program);
    for (key, value) in [
        ("k1", "v1"),
        ("k2", "<&>\"\u{1}\nä"),
        ("k3", ""),
        ("k1", "v2"),
    ] {
        server.portctl(["put", key, value]).ok();
    }
    server.portctl(["compaction", "2"]).ok();

    let portctl = env!("CARGO_BIN_EXE_portctl");
    let both = |arguments: &[&str], input: &[u8]| {
        let one = |program: &std::ffi::OsStr| -> Ran {
            let mut command = clean(Command::new(program));
            command.env("ETCDCTL_ENDPOINTS", server.endpoint());
            let mut ran = run(command.args(arguments), input);
            ran.out = without_times(&ran.out);
            ran.err = without_times(&without_log_lines(&ran.err));
            ran
        };
        assert_eq!(
            one(portctl.as_ref()),
            one(etcdctl.as_os_str()),
            "portctl, then etcdctl: {arguments:?}"
        );
    };

    // Nothing here changes the store, so both programs see the same.
    let reading: &[&[&str]] = &[
        &["get", "k1"],
        &["get", "k", "--prefix"],
        &["get", "k", "--prefix", "--limit=1"],
        &["get", "k", "--prefix", "--keys-only"],
        &["get", "k", "--prefix", "--sort-by=value", "--order=descend"],
        &["get", "k1", "k3", "--consistency=s"],
        &["get", "nothing"],
        &["del", "nothing"],
        &["member", "list"],
        &["alarm", "list"],
        &["alarm", "disarm"],
        &["endpoint", "hashkv"],
        &["lease", "list"],
        &["lease", "timetolive", "1234", "--keys"],
        &["lease", "keep-alive", "1234"],
        &["lease", "keep-alive", "--once", "1234"],
    ];
    for format in [
        "simple",
        "json",
        "fields",
        "table",
        "protobuf",
        "unheard-of",
    ] {
        for arguments in reading {
            let mut arguments = arguments.to_vec();
            arguments.extend(["-w", format]);
            both(&arguments, b"");
            arguments.push("--hex");
            both(&arguments, b"");
        }
        let transaction = b"val(\"k1\") = \"v2\"\n\nget k1\nget k --prefix --keys-only\n\n\n";
        both(&["txn", "-w", format], transaction);
        both(&["watch", "k1", "--rev=1", "-w", format], b"");
    }
    both(&["endpoint", "health"], b"");
    both(&["endpoint", "health", "-w", "fields"], b"");

    let refused: &[&[&str]] = &[
        &["get"],
        &["get", ""],
        &["get", "k1", "--rev=1"],
        &["get", "k1", "--rev=1000"],
        &["get", "k", "--prefix", "--from-key"],
        &["get", "k", "z", "--prefix"],
        &["get", "k1", "--order=sideways"],
        &["get", "k1", "--sort-by=mood"],
        &["get", "k1", "--consistency=x"],
        &["get", "k1", "--count-only"],
        &["get", "k1", "--keys-only", "--count-only"],
        &["get", "k1", "--print-value-only", "-w=json"],
        &["get", "k1", "--min-mod-rev=3", "--max-mod-rev=2"],
        &["put"],
        &["put", "a"],
        &["put", "", "x"],
        &["put", "a", "b", "--ignore-value"],
        &["put", "nothing", "--ignore-value"],
        &["put", "nothing", "b", "--ignore-lease"],
        &["put", "k1", "x", "--lease=zz"],
        &["put", "k1", "x", "--lease=77"],
        &["del"],
        &["del", "a", "b", "c"],
        &["del", "a", "--prefix", "--from-key"],
        &["compaction"],
        &["compaction", "abc"],
        &["compaction", "1"],
        &["compaction", "99999"],
        &["lease", "grant"],
        &["lease", "grant", "abc"],
        &["lease", "grant", "99999999999"],
        &["lease", "revoke", "1234"],
        &["lease", "revoke", "xyz"],
        &["lease", "timetolive"],
        &["txn", "argument"],
        &["alarm", "list", "argument"],
        &["endpoint", "hashkv", "--rev=99999"],
        &["check", "perf", "--load=huge"],
        &["snapshot", "save"],
        &["watch"],
        &["watch", "a", "--"],
        &["watch", "a", "b", "--prefix"],
        &["watch", "b", "a"],
    ];
    for arguments in refused {
        both(arguments, b"");
    }
    for input in [
        &b""[..],
        b"nonsense\n",
        b"val(\"a\")= \"2\"\n",
        b"foo(\"a\") = \"2\"\n",
        b"ver(\"a\") = \"x\"\n",
        b"\nfoo bar\n",
        b"\nput\n",
        b"\nget \"\\z\"\n",
        b"\nget k1 --order sideways\n",
    ] {
        both(&["txn"], input);
    }
    both(&["watch", "-i"], b"unheard-of\n\nwatch\n");
}
