//! Commands against a real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use support::{Server, for_each_server, portctl, run};

#[test]
fn keys_are_written_read_and_deleted() {
    for_each_server("commands::keys_are_written_read_and_deleted", |program| {
        let server = Server::start(program);
        let ctl = |arguments: &[&str]| server.portctl(arguments).ok();
        assert_eq!(ctl(&["put", "a", "1"]), "OK\n");
        assert_eq!(ctl(&["put", "a", "2", "--prev-kv"]), "OK\na\n1\n");
        assert_eq!(ctl(&["put", "b", "--", "-1"]), "OK\n");
        let from_stdin = server.portctl_with_input(["put", "c"], b"line\nline");
        assert_eq!(from_stdin.ok(), "OK\n");
        assert_eq!(ctl(&["put", "a", "--ignore-value"]), "OK\n");

        assert_eq!(ctl(&["get", "a"]), "a\n2\n");
        assert_eq!(ctl(&["get", "a", "--rev", "2"]), "a\n1\n");
        assert_eq!(ctl(&["get", "a", "c"]), "a\n2\nb\n-1\n");
        assert_eq!(
            ctl(&["get", "b", "--from-key", "--print-value-only"]),
            "-1\nline\nline\n"
        );
        let descending = [
            "get",
            "",
            "--prefix",
            "--order=descend",
            "--limit=2",
            "--keys-only",
        ];
        assert_eq!(ctl(&descending), "c\n\nb\n\n");
        assert_eq!(
            ctl(&["get", "", "--prefix", "--max-create-rev=2", "--keys-only"]),
            "a\n\n"
        );
        assert_eq!(
            ctl(&["get", "c", "--hex"]),
            "\\x63\n\\x6c\\x69\\x6e\\x65\\x0a\\x6c\\x69\\x6e\\x65\n"
        );
        let counted = ctl(&["get", "", "--prefix", "--count-only", "-w", "fields"]);
        assert!(
            counted.ends_with("\"More\" : false\n\"Count\" : 3\n"),
            "{counted}"
        );

        assert_eq!(ctl(&["del", "a", "--prev-kv"]), "1\na\n2\n");
        assert_eq!(ctl(&["del", "b", "z", "--range"]), "2\n");
        assert_eq!(ctl(&["del", "", "--prefix"]), "0\n");
    });
}

#[test]
fn keys_and_values_may_be_any_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for_each_server("commands::keys_and_values_may_be_any_bytes", |program| {
        let server = Server::start(program);
        let put = [
            OsStr::new("put"),
            OsStr::from_bytes(b"k\xff"),
            OsStr::from_bytes(b"\xfe\x01"),
        ];
        assert_eq!(server.portctl(put).ok(), "OK\n");
        let fields = server
            .portctl(["get", "k", "--prefix", "-w", "fields"])
            .ok();
        assert!(fields.contains("\"Key\" : \"k\\xff\"\n"), "{fields}");
        assert!(fields.contains("\"Value\" : \"\\xfe\\x01\"\n"), "{fields}");
    });
}

#[test]
fn txn_executes_the_branch_of_its_compares() {
    for_each_server("commands::a_transaction_takes_the_branch", |program| {
        let server = Server::start(program);
        server.portctl(["put", "a", "1"]).ok();
        let txn = |input: &str| server.portctl_with_input(["txn"], input.as_bytes());
        let ran = txn("val(\"a\") = \"1\"\nver(\"a\") < \"2\"\n\nput a 2\nget a\n\nget a\n\n");
        assert_eq!(ran.ok(), "SUCCESS\n\nOK\n\na\n2\n");
        let ran = txn("mod(\"a\") = \"1\"\n\nput a 3\n\nget a --prefix\ndel nothing\n\n");
        assert_eq!(ran.ok(), "FAILURE\n\na\n2\n\n0\n");
        let leased = txn("lease(\"a\") = \"0\"\n\nget a\n\n\n");
        assert_eq!(leased.ok(), "SUCCESS\n\na\n2\n");

        let prompted = server.portctl_with_input(["txn", "-i"], b"\n\n\n").ok();
        assert_eq!(
            prompted,
            "compares:\nsuccess requests (get, put, del):\nfailure requests (get, put, del):\nSUCCESS\n"
        );
        let cut_off = txn("val(\"a\") = \"1\"\n");
        assert_eq!(
            (cut_off.code, cut_off.err.as_str()),
            (Some(3), "Error: EOF\n")
        );
    });
}

#[test]
fn leases_are_granted_renewed_and_revoked() {
    for_each_server(
        "commands::leases_are_granted_renewed_and_revoked",
        |program| {
            let server = Server::start(program);
            let ctl = |arguments: &[&str]| server.portctl(arguments);
            let granted = ctl(&["lease", "grant", "100"]).ok();
            let id = granted.split(' ').nth(1).unwrap();
            assert_eq!(granted, format!("lease {id} granted with TTL(100s)\n"));
            ctl(&["put", "k", "v", "--lease", id]).ok();
            assert_eq!(
                ctl(&["lease", "list"]).ok(),
                format!("found 1 leases\n{id}\n")
            );
            let left = ctl(&["lease", "timetolive", id, "--keys"]).ok();
            assert!(left.starts_with(&format!("lease {id} granted with TTL(100s), remaining(")));
            assert!(left.ends_with("attached keys([k])\n"), "{left}");
            let renewed = ctl(&["lease", "keep-alive", "--once", id]).ok();
            assert_eq!(renewed, format!("lease {id} keepalived with TTL(100)\n"));
            assert_eq!(
                ctl(&["lease", "revoke", id]).ok(),
                format!("lease {id} revoked\n")
            );
            assert_eq!(ctl(&["get", "k"]).ok(), "");

            let gone = ctl(&["lease", "keep-alive", id]).ok();
            assert_eq!(gone, format!("lease {id} expired or revoked.\n"));
            let once = ctl(&["lease", "keep-alive", "--once", id]);
            assert_eq!(once.code, Some(2));
            assert_eq!(once.err, "Error: etcdserver: requested lease not found\n");
            let again = ctl(&["lease", "revoke", id]);
            assert_eq!(again.code, Some(1));
            let message = "Error: failed to revoke lease (etcdserver: requested lease not found)\n";
            assert_eq!(again.err, message);
        },
    );
}

/// A lease of three seconds that is kept alive for longer must still be there.
#[test]
fn keep_alive_renews_the_lease_until_it_ends() {
    for_each_server(
        "commands::keep_alive_renews_the_lease_until_it_ends",
        |program| {
            let server = Server::start(program);
            let granted = server.portctl(["lease", "grant", "3"]).ok();
            let id = granted.split(' ').nth(1).unwrap().to_owned();
            let mut keeping = portctl();
            keeping
                .env("PORTCTL_ENDPOINTS", server.endpoint())
                .args(["lease", "keep-alive", &id])
                .stdout(std::process::Stdio::piped());
            let mut keeping = keeping.spawn().unwrap();
            let mut renewals = std::io::BufReader::new(keeping.stdout.take().unwrap());
            for _ in 0..5 {
                let mut line = String::new();
                std::io::BufRead::read_line(&mut renewals, &mut line).unwrap();
                assert_eq!(line, format!("lease {id} keepalived with TTL(3)\n"));
            }
            // The fifth renewal is at least four seconds after the first.
            assert_eq!(
                server.portctl(["lease", "list"]).ok(),
                format!("found 1 leases\n{id}\n")
            );
            server.portctl(["lease", "revoke", &id]).ok();
            let mut rest = String::new();
            std::io::Read::read_to_string(&mut renewals, &mut rest).unwrap();
            assert!(
                rest.ends_with(&format!("lease {id} expired or revoked.\n")),
                "{rest}"
            );
            assert!(keeping.wait().unwrap().success());
        },
    );
}

#[test]
fn compacted_revision_is_refused() {
    for_each_server("commands::compacted_revision_is_refused", |program| {
        let server = Server::start(program);
        for value in ["1", "2", "3"] {
            server.portctl(["put", "a", value]).ok();
        }
        let compacted = server.portctl(["compaction", "3", "--physical"]).ok();
        assert_eq!(compacted, "compacted revision 3\n");
        let old = server.portctl(["get", "a", "--rev", "2"]);
        assert_eq!(old.code, Some(1));
        let message = "Error: etcdserver: mvcc: required revision has been compacted\n";
        assert_eq!(old.err, message);
    });
}

#[test]
fn endpoint_commands_report_the_member() {
    for_each_server("commands::endpoint_commands_report_the_member", |program| {
        let server = Server::start(program);
        let ctl = |arguments: &[&str]| server.portctl(arguments).ok();
        let endpoint = server.endpoint();
        let healthy = ctl(&["endpoint", "health"]);
        assert!(
            healthy.starts_with(&format!("{endpoint} is healthy: ")),
            "{healthy}"
        );
        let status = ctl(&["endpoint", "status", "--cluster", "-w", "json"]);
        assert!(
            status.starts_with(&format!("[{{\"Endpoint\":\"http://{endpoint}\"")),
            "{status}"
        );
        assert!(ctl(&["endpoint", "hashkv"]).starts_with(&format!("{endpoint}, ")));
        let members = ctl(&["member", "list"]);
        assert!(
            members.contains(", started, m1, http://127.0.0.1:"),
            "{members}"
        );
        assert_eq!(ctl(&["alarm", "list"]), "");
        assert_eq!(ctl(&["alarm", "disarm"]), "");
        let defragmented = ctl(&["defrag"]);
        let expected = format!("Finished defragmenting etcd member[{endpoint}]. took ");
        assert!(defragmented.starts_with(&expected), "{defragmented}");
    });
}

#[test]
fn unreachable_endpoint_is_skipped() {
    for_each_server("commands::unreachable_endpoint_is_skipped", |program| {
        let server = Server::start(program);
        let down = support::free_address().to_string();
        let both = format!("{down},{}", server.endpoint());
        let ctl = |arguments: &[&str]| {
            let mut command = portctl();
            command.args(["--endpoints", &both, "--command-timeout=2s"]);
            run(command.args(arguments), b"")
        };
        assert_eq!(ctl(&["put", "a", "1"]).ok(), "OK\n");
        assert_eq!(ctl(&["get", "a"]).ok(), "a\n1\n");

        let health = ctl(&["endpoint", "health"]);
        assert_eq!(health.code, Some(1));
        assert!(
            health
                .out
                .starts_with(&format!("{} is healthy", server.endpoint()))
        );
        let unhealthy =
            format!("{down} is unhealthy: failed to commit proposal: context deadline exceeded\n");
        assert!(health.err.starts_with(&unhealthy), "{health:?}");
        assert!(health.err.ends_with("Error: unhealthy cluster\n"));
    });
}
