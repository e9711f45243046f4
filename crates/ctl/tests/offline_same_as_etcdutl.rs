//! Commands on files, beside etcdutl's: exit code and standard output must be the same bytes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use portunus_testkit::program::Kind;
use support::{Ran, Server, clean, etcdutl, for_each_server, portctl, run};

const FORMATS: [&str; 6] = [
    "simple",
    "json",
    "fields",
    "table",
    "protobuf",
    "unheard-of",
];

fn offline(arguments: &[&str]) -> Ran {
    run(portctl().args(arguments), b"")
}

/// Compares exit code, output and the line with the error; etcdutl logs on standard error.
#[track_caller]
fn both(etcdutl: &Path, arguments: &[&str]) {
    let errors = |mut ran: Ran| {
        let lines = ran.err.split_inclusive('\n');
        ran.err = lines.filter(|line| line.starts_with("Error:")).collect();
        ran
    };
    let ours = errors(offline(arguments));
    let theirs = clean(Command::new(etcdutl)).args(arguments).output();
    let theirs = errors(theirs.unwrap().into());
    assert_eq!(ours, theirs, "portctl, then etcdutl: {arguments:?}");
}

/// A server with a history, a compaction and free pages.
fn filled(program: &portunus_testkit::program::Program) -> Server {
    let server = Server::start(program);
    for round in 0..3 {
        for key in 0..20 {
            let key = format!("k{key}");
            let value = format!("{round}{}", "x".repeat(20_000));
            server.portctl(["put", &key, &value]).ok();
        }
    }
    server.portctl(["del", "k1", "k2"]).ok();
    server.portctl(["compaction", "30", "--physical"]).ok();
    server
}

#[test]
fn status_and_hash_of_a_snapshot_print_as_in_etcdutl() {
    const TEST: &str = "offline::status_and_hash_of_a_snapshot_print_as_in_etcdutl";
    let Some(etcdutl) = etcdutl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| {
        let server = filled(program);
        let path = server.path("saved.db");
        let path = path.to_str().unwrap();
        server.portctl(["snapshot", "save", path]).ok();
        for format in FORMATS {
            both(&etcdutl, &["snapshot", "status", path, "-w", format]);
            both(&etcdutl, &["hashkv", path, "-w", format]);
        }
        for revision in ["30", "31", "60", "29", "1000"] {
            both(&etcdutl, &["hashkv", path, "--rev", revision]);
        }
        // The member of the server computes the same hash.
        let served = server.portctl(["endpoint", "hashkv", "--rev=60"]).ok();
        let of_file = offline(&["hashkv", path, "--rev=60"]).ok();
        let hash = |line: &str, at: usize| line.trim().split(", ").nth(at).map(str::to_owned);
        assert_eq!(hash(&served, 1), hash(&of_file, 0));

        let missing = server.path("missing");
        let missing = missing.to_str().unwrap();
        both(&etcdutl, &["snapshot", "status"]);
        both(&etcdutl, &["snapshot", "status", missing]);
        both(&etcdutl, &["hashkv", missing]);
        both(&etcdutl, &["defrag", "--data-dir", missing]);
        both(&etcdutl, &["snapshot", "restore"]);
        both(
            &etcdutl,
            &["snapshot", "restore", path, "--bump-revision=1"],
        );
    });
}

/// The space of deleted data is released, and the member starts with all its keys.
#[test]
fn stopped_member_is_defragmented_and_starts_again() {
    for_each_server("offline::stopped_member_is_defragmented", |program| {
        let mut server = filled(program);
        let keys = server.portctl(["get", "", "--prefix"]).ok();
        let data_dir = server.stop();
        let dir = data_dir.to_str().unwrap();
        let done = offline(&["defrag", "--data-dir", dir]);
        assert_eq!((done.code, &*done.out), (Some(0), ""), "{done:?}");
        assert!(done.err.starts_with("defragmented "), "{done:?}");
        if program.kind == Kind::Etcd {
            let database = data_dir.join("member/snap/db");
            let again = offline(&["defrag", "--data-dir", dir]);
            assert!(again.success, "{again:?}");
            // 18 keys of 20 kB with at most two versions each, and nothing else.
            let bytes = fs::metadata(&database).unwrap().len();
            assert!(bytes < 2_000_000, "{bytes}");
            let hash = offline(&["hashkv", database.to_str().unwrap()]).ok();
            assert!(hash.trim().ends_with(", 30"), "{hash}");
        } else {
            let hash = offline(&["hashkv", dir]).ok();
            assert!(hash.trim().ends_with(", 30"), "{hash}");
        }
        server.start_again();
        assert_eq!(server.portctl(["get", "", "--prefix"]).ok(), keys);

        // A running member holds the lock.
        let refused = offline(&["defrag", "--data-dir", dir, "--timeout=100ms"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.err.contains("in use by another process"),
            "{refused:?}"
        );
    });
}
