//! `make-mirror` against real clusters, and beside etcdctl's.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::time::Duration;

use portunus_testkit::wait::until_blocking;
use support::running::Running;
use support::{Ran, Server, etcdctl, for_each_server};

const PORTCTL: &str = env!("CARGO_BIN_EXE_portctl");
/// More than the time between two lines with the number of mirrored keys.
const REPORTED_WITHIN: Duration = Duration::from_secs(45);

fn mirror(program: &OsStr, source: &Server, target: &Server, flags: &[&str]) -> Running {
    let mut command = source.command(program);
    command
        .args(["make-mirror", &target.endpoint()])
        .args(flags);
    Running::start(&mut command)
}

/// All keys with their values, in the order of their keys.
fn contents(server: &Server) -> String {
    server.portctl(["get", "", "--prefix"]).ok()
}

#[track_caller]
fn until_contents(server: &Server, expected: &str) {
    until_blocking("mirrored keys", || match contents(server) {
        found if found == expected => Ok(()),
        found => Err(found),
    });
}

/// Mirrors by both programs end with the same keys: of the first copy, of writes, of transactions
/// and of deletions.
#[test]
fn mirrors_of_portctl_and_etcdctl_have_the_same_keys() {
    const TEST: &str = "mirror::mirrors_of_portctl_and_etcdctl_have_the_same_keys";
    for_each_server(TEST, |program| {
        let source = Server::start(program);
        let put = |key: &str, value: &str| source.portctl(["put", key, value]).ok();
        for number in 0..1100 {
            // More than one page; written by transactions to save time.
            if number % 100 == 0 {
                let puts: String = (number..number + 100)
                    .map(|number| format!("put p/{number:04} v{number}\n"))
                    .collect();
                let txn = format!("\n{puts}\n\n");
                source.portctl_with_input(["txn"], txn.as_bytes()).ok();
            }
        }
        put("other", "x");
        let flags = ["--prefix=p/", "--dest-prefix=copy/"];
        let mut programs = vec![OsStr::new(PORTCTL).to_owned()];
        programs.extend(etcdctl(TEST).map(|path| path.into_os_string()));
        let targets: Vec<(Server, Running)> = programs
            .iter()
            .map(|tool| {
                let target = Server::start(program);
                let running = mirror(tool, &source, &target, &flags);
                (target, running)
            })
            .collect();
        let expected: String = (0..1100)
            .map(|number| format!("copy/{number:04}\nv{number}\n"))
            .collect();
        for (target, _) in &targets {
            until_contents(target, &expected);
        }
        // Followed: a write, a transaction, deletions, and a key outside of the prefix.
        put("p/0000", "new");
        put("q", "outside");
        let txn = b"\nput p/a 1\nput p/b 2\nput p/c 3\n\n\n";
        source.portctl_with_input(["txn"], txn).ok();
        source.portctl(["del", "p/0001", "p/1099"]).ok();
        let expected = "copy/0000\nnew\ncopy/1099\nv1099\ncopy/a\n1\ncopy/b\n2\ncopy/c\n3\n";
        for (target, mut running) in targets {
            until_contents(&target, expected);
            // A transaction is one at the mirror, too.
            let get = ["get", "copy/a", "copy/d", "-w", "json"];
            let json: serde_json::Value = serde_json::from_str(&target.portctl(get).ok()).unwrap();
            let kvs = json["kvs"].as_array().unwrap().iter();
            let revisions: std::collections::BTreeSet<_> =
                kvs.map(|kv| kv["mod_revision"].as_u64().unwrap()).collect();
            assert_eq!(revisions.len(), 1, "{json}");
            // 1100 copied, 1 + 3 written, 1098 deleted.
            let reported = running.line_within(REPORTED_WITHIN);
            assert_eq!(reported.as_deref(), Some("2202"));
        }
    });
}

/// A mirror whose destination is gone ends with the revision to continue with.
#[test]
fn failed_mirror_reports_the_revision_to_continue_with() {
    for_each_server("mirror::failed_mirror", |program| {
        let source = Server::start(program);
        let mut target = Server::start(program);
        source.portctl(["put", "a", "1"]).ok();
        let running = mirror(PORTCTL.as_ref(), &source, &target, &[]);
        until_contents(&target, "a\n1\n");
        source.portctl(["put", "b", "2"]).ok();
        until_contents(&target, "a\n1\nb\n2\n");
        // The destination refuses what it has no permission for.
        target.portctl(["user", "add", "root:pw"]).ok();
        target.portctl(["user", "grant-role", "root", "root"]).ok();
        target.portctl(["auth", "enable"]).ok();
        source.portctl(["put", "c", "3"]).ok();
        let ended = running.ended();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let note = "mirrored up to revision 3: continue with --rev=4\nError: etcdserver: ";
        assert!(ended.err.starts_with(note), "{ended:?}");
        target.stop();
    });
}

/// A mirror of a revision starts with the changes, and keeps the prefix.
#[test]
fn mirror_of_a_revision_copies_only_later_changes() {
    for_each_server("mirror::mirror_of_a_revision", |program| {
        let source = Server::start(program);
        let target = Server::start(program);
        source.portctl(["put", "p/1", "a"]).ok();
        source.portctl(["put", "p/2", "b"]).ok();
        source.portctl(["put", "p/3", "c"]).ok();
        let flags = ["--prefix=p/", "--rev=3", "--max-txn-ops=1"];
        let _running = mirror(PORTCTL.as_ref(), &source, &target, &flags);
        until_contents(&target, "p/2\nb\np/3\nc\n");

        let root = Server::start(program);
        let flags = ["--prefix=p/", "--no-dest-prefix"];
        let _running = mirror(PORTCTL.as_ref(), &source, &root, &flags);
        until_contents(&root, "1\na\n2\nb\n3\nc\n");
    });
}

#[test]
fn refused_mirrors_print_as_in_etcdctl() {
    const TEST: &str = "mirror::refused_mirrors_print_as_in_etcdctl";
    for_each_server(TEST, |program| {
        let source = Server::start(program);
        for value in ["1", "2", "3", "4"] {
            source.portctl(["put", "a", value]).ok();
        }
        source.portctl(["compaction", "4"]).ok();
        let own = source.endpoint();
        let conflict = ["make-mirror", &own, "--dest-prefix=a", "--no-dest-prefix"];
        let compacted = ["make-mirror", &own, "--rev=2"];
        let cases: [(&[&str], i32, &str); 4] = [
            (&["make-mirror"], 128, "takes one destination argument"),
            (
                &["make-mirror", "a:1", "b:2"],
                128,
                "takes one destination argument",
            ),
            (&conflict, 128, "cannot be set at the same time, choose one"),
            (&compacted, 1, "required revision has been compacted"),
        ];
        for (arguments, code, text) in cases {
            let run = |tool: &OsStr| -> Ran {
                let mut ran = support::run(source.command(tool).args(arguments), b"");
                let lines = ran.err.split_inclusive('\n');
                ran.err = lines
                    .filter(|line| !line.starts_with("{\"level\""))
                    .collect();
                ran
            };
            let ours = run(PORTCTL.as_ref());
            assert_eq!(ours.code, Some(code), "{ours:?}");
            assert!(ours.err.contains(text), "{ours:?}");
            if let Some(etcdctl) = etcdctl(TEST) {
                assert_eq!(ours, run(etcdctl.as_os_str()), "{arguments:?}");
            }
        }
    });
}
