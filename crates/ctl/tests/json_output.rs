//! `-w json`: the fields that `docs/portctl.md` promises are there, and no others.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use portunus_testkit::program::Kind;
use serde_json::Value;
use support::{Server, for_each_server};

fn fields(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// Runs a command and compares the fields of its answer.
#[track_caller]
fn expect(server: &Server, arguments: &[&str], expected: &[&str]) -> Value {
    let ran = server.portctl([arguments, &["-w", "json"]].concat());
    let text = ran.out.clone();
    let whole: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let value = match &whole {
        Value::Array(items) => &items[0],
        value => value,
    };
    let expected: BTreeSet<&str> = expected.iter().copied().collect();
    assert_eq!(fields(value), expected, "{arguments:?}: {text}");
    whole
}

#[test]
fn json_answers_have_the_documented_fields() {
    for_each_server(
        "json_output::json_answers_have_the_documented_fields",
        |program| {
            let server = Server::start(program);
            let expect =
                |arguments: &[&str], expected: &[&str]| expect(&server, arguments, expected);
            let put = expect(&["put", "key", "value"], &["header"]);
            assert_eq!(
                fields(&put["header"]),
                ["cluster_id", "member_id", "raft_term", "revision"].into()
            );
            let got = expect(&["get", "key"], &["header", "kvs", "count"]);
            let pair = &got["kvs"][0];
            assert_eq!(
                fields(pair),
                ["create_revision", "key", "mod_revision", "value", "version"].into()
            );
            assert_eq!(
                (&pair["key"], &pair["value"]),
                (&"a2V5".into(), &"dmFsdWU=".into())
            );
            expect(&["del", "key"], &["header", "deleted"]);
            expect(&["member", "list"], &["header", "members"]);
            expect(&["endpoint", "status"], &["Endpoint", "Status"]);
            expect(&["endpoint", "hashkv"], &["Endpoint", "HashKV"]);
            expect(&["endpoint", "health"], &["endpoint", "health", "took"]);
            let path = server.path("saved.db");
            let path = path.to_str().unwrap();
            server.portctl(["snapshot", "save", path]).ok();
            let status = ["hash", "revision", "totalKey", "totalSize", "version"];
            expect(&["snapshot", "status", path], &status);
            expect(
                &["hashkv", path],
                &["hash", "hashRevision", "compactRevision"],
            );
            let check = ["check", "kubernetes", "--keep-history", "-w", "json"];
            let rules = server.portctl(check).ok();
            let report: Value = serde_json::from_str(&rules).unwrap();
            let whole = ["failed", "passed", "prefix", "rules", "skipped"];
            assert_eq!(fields(&report), whole.into());
            let mut names = fields(&report["rules"][0]);
            names.remove("reason");
            let each = [
                "description",
                "id",
                "milliseconds",
                "outcome",
                "requirements",
            ];
            assert_eq!(names, each.into());
        },
    );
}

#[test]
fn json_of_a_migration_has_the_documented_fields() {
    for_each_server("json_output::json_of_a_migration", |program| {
        if program.kind == Kind::Etcd {
            return;
        }
        let mut server = Server::start(program);
        let dir = server.stop().to_str().unwrap().to_owned();
        let migrate = ["migrate", "--target-version=3.6", "--data-dir", &dir];
        let expected = [
            "clusterVersion",
            "removedFeatures",
            "storageVersion",
            "storageVersionBefore",
        ];
        expect(&server, &migrate, &expected);
    });
}
