//! Users, roles and authentication through etcdctl and through `portctl`: the same commands on two
//! servers with the same ids; exit code, standard output and error must be the same bytes.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use support::twins::Twins;
use support::{Ran, etcdctl, for_each_server};

const FORMATS: [&str; 5] = ["simple", "json", "fields", "table", "protobuf"];

/// Runs a command that changes something as root.
#[track_caller]
fn as_root(twins: &Twins<'_>, arguments: &[&str]) -> Ran {
    twins.both(&[&["--user=root:rootpw"], arguments].concat())
}

#[test]
fn users_roles_and_refusals_are_the_same() {
    const TEST: &str = "auth_same_as_etcdctl::users_roles_and_refusals_are_the_same";
    let Some(etcdctl) = etcdctl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| {
        let twins = Twins::start(program, &etcdctl);
        wrong_arguments(&twins);
        without_authentication(&twins);
        with_authentication(&twins);
    });
}

fn wrong_arguments(twins: &Twins<'_>) {
    for arguments in [
        &["auth", "enable", "x"][..],
        &["auth", "disable", "x"],
        &["auth", "status", "x"],
        &["user", "add"],
        &["user", "add", "a", "b"],
        &["user", "add", ":password"],
        &["user", "delete"],
        &["user", "get"],
        &["user", "list", "x"],
        &["user", "passwd"],
        &["user", "grant-role", "a"],
        &["user", "revoke-role", "a"],
        &["role", "add"],
        &["role", "delete"],
        &["role", "get", "a", "b"],
        &["role", "list", "x"],
        &["role", "grant-permission", "r", "read"],
        &["role", "grant-permission", "r", "rw", "a"],
        &[
            "role",
            "grant-permission",
            "r",
            "read",
            "a",
            "--prefix",
            "--from-key",
        ],
        &[
            "role",
            "grant-permission",
            "r",
            "read",
            "",
            "--prefix",
            "--from-key",
        ],
        &[
            "role",
            "grant-permission",
            "r",
            "read",
            "a",
            "b",
            "--prefix",
        ],
        &[
            "role",
            "grant-permission",
            "r",
            "read",
            "a",
            "b",
            "--from-key",
        ],
        &["role", "revoke-permission", "r"],
        &["role", "revoke-permission", "r", "a", "b", "--prefix"],
    ] {
        let ran = twins.both(arguments);
        assert_eq!(ran.code, Some(128), "{ran:?}");
    }
}

fn without_authentication(twins: &Twins<'_>) {
    twins.in_all_formats(&["auth", "status"]);
    twins.in_all_formats(&["auth", "disable"]);
    for refused in [
        &["auth", "enable"][..],
        &["user", "get", "nobody"],
        &["user", "get", "nobody", "--detail"],
        &["user", "delete", "nobody"],
        &["user", "grant-role", "nobody", "r"],
        &["user", "revoke-role", "nobody", "r"],
        &["user", "add", "", "--no-password"],
        &["role", "get", "nothing"],
        &["role", "delete", "nothing"],
        &["role", "add", ""],
        &["role", "grant-permission", "nothing", "read", "a"],
        &["role", "revoke-permission", "nothing", "a"],
    ] {
        assert_eq!(twins.both(refused).code, Some(1), "{refused:?}");
    }

    // Every source of a password.
    twins.both(&["user", "add", "root:rootpw"]);
    twins.both(&["user", "add", "dave", "--new-user-password=davepw"]);
    twins.both(&["user", "add", "e:f", "--new-user-password", "epw"]);
    twins.both(&["user", "add", "carol", "--no-password"]);
    let scanned = ["user", "add", "alice", "--interactive=false"];
    twins.both_reading(&scanned, " alicepw rest\nmore\n");
    let asked = ["user", "add", "bob"];
    for (input, code) in [
        ("", 128),
        ("\n", 128),
        ("one\nother\n", 128),
        (" bobpw \r\nbobpw\n", 0),
    ] {
        assert_eq!(twins.both_reading(&asked, input).code, Some(code));
    }
    twins.both(&["user", "add", "root:again"]);
    let empty = ["user", "add", "frank", "--interactive=false"];
    twins.both_reading(&empty, "\nx\n");
    twins.both_reading(&["user", "passwd", "bob", "--interactive"], "new\nnew\n");
    twins.both_reading(&["user", "passwd", "bob", "--interactive=false"], "bobpw");
    twins.both_reading(&["user", "passwd", "nobody", "--interactive=false"], "x\n");
    twins.both_reading(&["user", "passwd", "carol", "--interactive=false"], "x\n");

    for format in FORMATS {
        let name = format!("of-{format}");
        let user = format!("{name}:pw");
        for change in [
            &["user", "add", &user][..],
            &["role", "add", &name],
            &["role", "grant-permission", &name, "readwrite", "k"],
            &["user", "grant-role", &name, &name],
            &["role", "revoke-permission", &name, "k"],
            &["user", "revoke-role", &name, &name],
            &["role", "delete", &name],
            &["user", "delete", &name],
        ] {
            twins.both(&[change, &["-w", format]].concat());
        }
        let passwd = [
            "user",
            "passwd",
            "dave",
            "--interactive=false",
            "-w",
            format,
        ];
        twins.both_reading(&passwd, "davepw\n");
    }

    twins.both(&["role", "add", "r1"]);
    twins.both(&["role", "add", "r1"]);
    twins.both(&["role", "add", "r<2>"]);
    twins.both(&["role", "add", "root"]);
    for permission in [
        &["read", "plain"][..],
        &["WRITE", "from", "to"],
        &["readwrite", "pre/", "--prefix"],
        &["ReadWrite", "open", "--from-key"],
        &["read", "\u{7f}\u{ff}", "--prefix"],
        &["write", "\u{e4} \"q\"", "\u{e5}"],
        &["read", "z", "a"],
    ] {
        twins.both(&[&["role", "grant-permission", "r1"], permission].concat());
    }
    for all in [
        &["read", "", "--prefix"][..],
        &["write", "", "--from-key"],
        &["read", ""],
        &["write", "", "ignored"],
    ] {
        twins.both(&[&["role", "grant-permission", "r<2>"], all].concat());
        twins.in_all_formats(&["role", "get", "r<2>"]);
    }
    for role in ["r1", "r<2>", "root"] {
        twins.in_all_formats(&["role", "get", role]);
        twins.both(&["user", "grant-role", "alice", role]);
    }
    twins.both(&["user", "revoke-role", "alice", "root"]);
    twins.both(&["user", "revoke-role", "alice", "root"]);
    twins.in_all_formats(&["role", "list"]);
    twins.in_all_formats(&["user", "list"]);
    for user in ["alice", "bob"] {
        twins.in_all_formats(&["user", "get", user]);
        twins.in_all_formats(&["user", "get", user, "--detail"]);
    }
    for revoked in [
        &["", "--prefix"][..],
        &["from", "to"],
        &["from", "to"],
        &["open", "--from-key"],
        &["z", "a"],
    ] {
        twins.both(&[&["role", "revoke-permission", "r1"], revoked].concat());
        twins.both(&[&["role", "revoke-permission", "r<2>"], revoked].concat());
    }
    twins.in_all_formats(&["role", "get", "r1"]);
    // Credentials have no effect while authentication is off.
    twins.both(&["--user=nobody:x", "get", "k"]);
}

fn with_authentication(twins: &Twins<'_>) {
    // Grants the role root to the user root, which exists already.
    twins.both(&["auth", "enable"]);
    twins.both(&["user", "grant-role", "root", "root"]);
    twins.both(&["auth", "enable"]);
    twins.both(&["auth", "enable"]);
    twins.in_all_formats(&["auth", "status"]);

    // Every source of an identity, and wrong ones.
    let get = ["get", "plain"];
    for (flags, input) in [
        (&[][..], ""),
        (&["--user=root:rootpw"], ""),
        (&["--user", "root", "--password", "rootpw"], ""),
        (&["--user=root"], "rootpw\n"),
        (&["--user=root"], ""),
        (&["--user=root"], "wrong\n"),
        (&["--user=root:wrong"], ""),
        (&["--user=root:rootpw", "--password=rootpw"], ""),
        (&["--user=root:"], ""),
        (&["--user="], ""),
        (&["--user=nobody:x"], ""),
        (&["--user=carol:x"], ""),
        (&["--password=rootpw"], ""),
        (&["--user=alice:alicepw"], ""),
        (&["--user=e:f", "--password=epw"], ""),
        (&["--auth-jwt-token=nonsense"], ""),
        (&["--auth-jwt-token=nonsense", "--user=root:rootpw"], ""),
    ] {
        twins.both_reading(&[flags, &get].concat(), input);
    }
    for environment in [
        &[("ETCDCTL_USER", "root:rootpw")][..],
        &[("ETCDCTL_USER", "root"), ("ETCDCTL_PASSWORD", "rootpw")],
        &[("ETCDCTL_AUTH_JWT_TOKEN", "nonsense")],
    ] {
        twins.both_with(&get, "", environment);
    }

    // What users may do.
    for user in ["--user=root:rootpw", "--user=alice:alicepw", "--user="] {
        for arguments in [
            &["get", "plain"][..],
            &["put", "plain", "v"],
            &["put", "pre/1", "v"],
            &["get", "pre/", "--prefix"],
            &["get", "pre/", "--prefix", "-w", "json"],
            &["get", "q"],
            &["put", "pre/2", "v", "--prev-kv"],
            &["del", "pre/2"],
            &["txn"],
            &["compaction", "1"],
            &["lease", "grant", "abc"],
            &["lease", "timetolive", "1234"],
            &["lease", "revoke", "1234"],
            &["lease", "list"],
            &["lease", "keep-alive", "--once", "1234"],
            &["member", "list"],
            &["alarm", "list"],
            &["endpoint", "health"],
            &["endpoint", "health", "-w", "json"],
            &["endpoint", "health", "-w", "fields"],
            &["endpoint", "hashkv"],
            &["defrag"],
            &["watch", "q", "--rev=1"],
            &["user", "list"],
            &["user", "get", "alice"],
            &["user", "get", "alice", "--detail"],
            &["user", "get", "root"],
            &["role", "list"],
            &["role", "get", "r1"],
            &["role", "get", "root"],
            &["role", "add", "new"],
            &["role", "delete", "new"],
            &["auth", "status"],
            &["auth", "enable"],
        ] {
            // A watch that is allowed does not end.
            if arguments[0] == "watch" && user.starts_with("--user=root") {
                continue;
            }
            let transaction = "val(\"plain\") = \"v\"\n\nget pre/1\n\nput q 1\n\n";
            twins.both_reading(&[&[user], arguments].concat(), transaction);
        }
    }
    for user in ["--user=root:wrong", "--user=nobody:x"] {
        for command in [
            &["endpoint", "health"][..],
            &["endpoint", "health", "-w", "json"],
            &["endpoint", "health", "-w", "fields"],
            &["endpoint", "hashkv"],
            &["endpoint", "status"],
            &["endpoint", "status", "--cluster"],
            &["defrag"],
            &["watch", "q"],
            &["lease", "grant", "10"],
            &["user", "list"],
            &["auth", "status"],
            &["auth", "disable"],
        ] {
            twins.both(&[&[user], command].concat());
        }
    }

    // Changes take effect at once.
    as_root(twins, &["user", "revoke-role", "alice", "r1"]);
    twins.both(&["--user=alice:alicepw", "get", "plain"]);
    as_root(twins, &["user", "delete", "alice"]);
    twins.both(&["--user=alice:alicepw", "get", "plain"]);
    as_root(twins, &["user", "revoke-role", "root", "root"]);
    as_root(twins, &["user", "delete", "root"]);
    as_root(twins, &["role", "delete", "root"]);
    // The new password is asked for before the one of root.
    let passwords = "bob2\nbob2\nrootpw\n";
    twins.both_reading(&["--user=root", "user", "passwd", "bob"], passwords);
    twins.both(&["--user=bob:bobpw", "get", "plain"]);
    twins.both(&["--user=bob:bob2", "get", "plain"]);
    twins.both(&["auth", "disable"]);
    as_root(twins, &["auth", "disable"]);
    twins.in_all_formats(&["auth", "status"]);
    twins.both(&["get", "plain"]);
}
