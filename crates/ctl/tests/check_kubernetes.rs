//! `check kubernetes` against Portunus and against Go's etcd.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use portunus_testkit::wait::until_blocking;
use support::{Server, for_each_server, portctl, run};

#[test]
fn store_is_checked_rule_by_rule_and_left_clean() {
    let test = "check_kubernetes::store_is_checked_rule_by_rule_and_left_clean";
    for_each_server(test, |program| {
        let server = Server::start(program);
        let out = server.portctl(["check", "kubernetes"]).ok();
        assert!(out.starts_with("PASS arguments-are-checked: "), "{out}");
        assert!(out.contains("\nPASS watch-groups-transactions: "), "{out}");
        let last = out.lines().last().unwrap();
        assert!(
            last.ends_with(" rules passed, 0 failed, 0 skipped"),
            "{out}"
        );
        let left = server.portctl(["get", "", "--prefix", "--keys-only"]).ok();
        assert_eq!(left, "");
    });
}

#[test]
fn report_as_json_has_every_chosen_rule_with_its_outcome() {
    let test = "check_kubernetes::report_as_json_has_every_chosen_rule_with_its_outcome";
    for_each_server(test, |program| {
        let server = Server::start(program);
        let rules = [
            "--rule=create-succeeds-once",
            "--rule=list-fails-after-compaction",
            "--keep-history",
        ];
        let command = ["check", "kubernetes", "-w", "json"];
        let out = server.portctl(command.iter().chain(&rules)).ok();
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["passed"], 1, "{out}");
        assert_eq!(report["skipped"], 1, "{out}");
        let rules = report["rules"].as_array().unwrap();
        assert_eq!(rules[0]["id"], "create-succeeds-once");
        assert_eq!(rules[0]["outcome"], "pass");
        assert_eq!(rules[1]["outcome"], "skip");
        assert_eq!(rules[1]["reason"], "the store has no compaction");
    });
}

#[test]
fn store_that_breaks_a_rule_ends_with_exit_code_1() {
    let test = "check_kubernetes::store_that_breaks_a_rule_ends_with_exit_code_1";
    for_each_server(test, |program| {
        let directory = tempfile::tempdir().unwrap();
        let mut member = Member::new("m1", program.clone(), directory.path()).unwrap();
        // Too few for a transaction of several keys.
        member.flags = vec!["--max-txn-ops=2".to_owned()];
        member.launch(&[]);
        let check = |arguments: &[&str]| {
            let mut command = portctl();
            command.env("PORTCTL_ENDPOINTS", member.endpoint());
            run(command.args(["check", "kubernetes"]).args(arguments), b"")
        };
        until_blocking("healthy server", || {
            match check(&["--rule=create-succeeds-once"]) {
                ran if ran.success => Ok(()),
                ran => Err((ran, member.log())),
            }
        });
        let broken = check(&[
            "--rule=watch-groups-transactions",
            "--rule=get-reads-history",
        ]);
        assert_eq!(broken.code, Some(1), "{broken:?}");
        let failed = "FAIL watch-groups-transactions: ";
        assert!(broken.out.contains(failed), "{broken:?}");
        assert!(
            broken.out.contains("PASS get-reads-history: "),
            "{broken:?}"
        );
        assert!(
            broken
                .out
                .ends_with("1 rules passed, 1 failed, 0 skipped\n"),
            "{broken:?}"
        );
    });
}

#[test]
fn unusable_prefix_format_or_rule_is_refused_before_anything_is_written() {
    let server = Server::start(&Program::portunus());
    let check = |arguments: &[&str]| {
        let all = ["check", "kubernetes"].iter().chain(arguments);
        server.portctl(all)
    };
    assert_eq!(check(&["--prefix=/x"]).code, Some(128));
    let unknown = check(&["--rule=no-such-rule"]);
    assert_eq!(unknown.code, Some(128));
    assert!(unknown.err.contains("no-such-rule"), "{unknown:?}");
    assert_eq!(check(&["-w", "table"]).code, Some(4));
    server.portctl(["put", "/x/a", "1"]).ok();
    let used = check(&["--prefix=/x/"]);
    assert_eq!(used.code, Some(3), "{used:?}");
    let left = server.portctl(["get", "", "--prefix", "--keys-only"]);
    assert_eq!(left.ok(), "/x/a\n\n");
}
