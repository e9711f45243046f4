//! `lock` and `elect` against real servers, alone and against etcdctl's.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use portunus_testkit::wait::until_blocking;
use rustix::process::Signal;
use support::running::Running;
use support::{Ran, Server, etcdctl, for_each_server, run};

const PORTCTL: &str = env!("CARGO_BIN_EXE_portctl");
/// Long enough for a program that has the lock to print its key.
const NOT_HELD: Duration = Duration::from_millis(1500);

fn start(program: &OsStr, server: &Server, arguments: &[&str]) -> Running {
    Running::start(server.command(program).args(arguments))
}

/// The programs in every order of holder and waiter.
fn pairs(test: &str) -> Vec<(OsString, OsString)> {
    let ours = OsString::from(PORTCTL);
    let mut pairs = vec![(ours.clone(), ours.clone())];
    if let Some(etcdctl) = etcdctl(test) {
        let theirs = etcdctl.into_os_string();
        pairs.push((ours.clone(), theirs.clone()));
        pairs.push((theirs, ours));
    }
    pairs
}

fn keys(server: &Server, prefix: &str) -> usize {
    let found = server.portctl(["get", prefix, "--prefix", "--keys-only"]);
    found.ok().lines().filter(|line| !line.is_empty()).count()
}

#[track_caller]
fn until_keys(server: &Server, prefix: &str, expected: usize) {
    until_blocking("keys", || match keys(server, prefix) {
        found if found == expected => Ok(()),
        found => Err(found),
    });
}

#[test]
fn locks_of_portctl_and_etcdctl_exclude_each_other() {
    const TEST: &str = "locks_and_elections::locks_of_portctl_and_etcdctl_exclude_each_other";
    for_each_server(TEST, |program| {
        let server = Server::start(program);
        for (holder, waiter) in pairs(TEST) {
            let mut first = start(&holder, &server, &["lock", "job"]);
            let key = first.line();
            assert!(key.starts_with("job/"), "{key}");
            assert_eq!(first.line(), "");
            let mut second = start(&waiter, &server, &["lock", "job"]);
            until_keys(&server, "job/", 2);
            assert_eq!(second.line_within(NOT_HELD), None);
            // Another name is another lock.
            let other = run(server.command(&waiter).args(["lock", "job2", "true"]), b"");
            assert!(other.success, "{other:?}");

            first.signal(Signal::INT);
            let released = first.ended();
            assert_eq!((released.code, &*released.err), (Some(0), ""), "{holder:?}");
            let next = second.line();
            assert!(next.starts_with("job/") && next != key, "{next}");
            second.signal(Signal::TERM);
            assert_eq!(second.ended().code, Some(0), "{waiter:?}");
            assert_eq!(keys(&server, "job"), 0);
        }
    });
}

/// Replaces the random lease in the key of a lock.
fn without_lease(mut ran: Ran) -> Ran {
    let replaced = |word: &str| {
        let id = word.trim_end();
        match id.len() > 10 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => word.replace(id, "LEASE"),
            false => word.to_owned(),
        }
    };
    let words = ran.out.split_inclusive(['\n', '/', ' ']);
    ran.out = words.map(replaced).collect();
    ran
}

/// A command under the lock has its key and revision, no input, and its exit code is that of the
/// program.
#[test]
fn command_under_a_lock_runs_as_with_etcdctl() {
    const TEST: &str = "locks_and_elections::command_under_a_lock_runs_as_with_etcdctl";
    for_each_server(TEST, |program| {
        let twins = Server::start_twins(program);
        let mut programs = vec![OsString::from(PORTCTL)];
        programs.extend(etcdctl(TEST).map(|path| path.into_os_string()));
        let script = "echo $ETCD_LOCK_KEY $ETCD_LOCK_REV; cat; echo problem >&2; exit 7";
        let cases: [&[&str]; 8] = [
            &["lock", "x", "--", "sh", "-c", script],
            &["lock", "x", "true"],
            &["lock", "x", "false"],
            &["lock", "--ttl=5", "x", "--", "sh", "-c", "kill -9 $$"],
            &["lock", "x", "no-such-program"],
            &["lock", "x", "./no-such-program"],
            &["lock", "x", "--ttl=-1", "true"],
            &["lock"],
        ];
        for arguments in cases {
            let mut ran = programs.iter().zip(&twins).map(|(program, server)| {
                let mut ran = run(server.command(program).args(arguments), b"input");
                let lines = ran.err.split_inclusive('\n');
                ran.err = lines
                    .filter(|line| !line.starts_with("{\"level\""))
                    .collect();
                without_lease(ran)
            });
            let ours = ran.next().unwrap();
            if let Some(theirs) = ran.next() {
                assert_eq!(ours, theirs, "portctl, then etcdctl: {arguments:?}");
            }
            if arguments.contains(&script) {
                assert_eq!(
                    (ours.code, &*ours.out),
                    (Some(7), "x/LEASE 2\n"),
                    "{ours:?}"
                );
            }
        }
        assert_eq!(keys(&twins[0], "x"), 0);
        // The session has ended with the program.
        let leases = twins[0].portctl(["lease", "list"]).ok();
        assert_eq!(leases, "found 0 leases\n");
    });
}

#[test]
fn lock_that_is_interrupted_or_expires_is_reported() {
    for_each_server("locks_and_elections::interrupted_lock", |program| {
        let server = Server::start(program);
        let lock = ["lock", "x", "-w", "json"];
        let mut holder = start(PORTCTL.as_ref(), &server, &lock);
        let json: serde_json::Value = serde_json::from_str(&holder.line()).unwrap();
        let lease = json["kvs"][0]["lease"].as_u64().unwrap();
        let waiter = start(PORTCTL.as_ref(), &server, &["lock", "x"]);
        until_keys(&server, "x/", 2);
        waiter.signal(Signal::TERM);
        let waited = waiter.ended();
        assert_eq!(
            (waited.code, &*waited.out, &*waited.err),
            (Some(1), "", "Error: context canceled\n")
        );
        until_keys(&server, "x/", 1);

        server
            .portctl(["lease", "revoke", &format!("{lease:x}")])
            .ok();
        let expired = holder.ended();
        assert_eq!(
            (expired.code, &*expired.err),
            (Some(1), "Error: session expired\n")
        );
    });
}

#[test]
fn leaders_of_portctl_and_etcdctl_follow_each_other() {
    const TEST: &str = "locks_and_elections::leaders_of_portctl_and_etcdctl_follow_each_other";
    for_each_server(TEST, |program| {
        let server = Server::start(program);
        for (first, second) in pairs(TEST) {
            let mut leader = start(&first, &server, &["elect", "e", "one"]);
            let key = leader.line();
            assert!(key.starts_with("e/"), "{key}");
            assert_eq!(leader.line(), "one");
            let observers = [&first, &second]
                .map(|program| start(program, &server, &["elect", "--listen", "e"]));
            let [mut ours, mut theirs] = observers;
            for observer in [&mut ours, &mut theirs] {
                assert_eq!(
                    (observer.line(), observer.line()),
                    (key.clone(), "one".to_owned())
                );
            }
            let mut candidate = start(&second, &server, &["elect", "e", "two"]);
            until_keys(&server, "e/", 2);
            assert_eq!(candidate.line_within(NOT_HELD), None);

            leader.signal(Signal::INT);
            assert_eq!(leader.ended().code, Some(0), "{first:?}");
            let key = candidate.line();
            assert_eq!(candidate.line(), "two");
            for mut observer in [ours, theirs] {
                assert_eq!(
                    (observer.line(), observer.line()),
                    (key.clone(), "two".to_owned())
                );
                observer.signal(Signal::INT);
                let ended = observer.ended();
                assert_eq!((ended.code, &*ended.err), (Some(0), ""));
            }
            candidate.signal(Signal::TERM);
            assert_eq!(candidate.ended().code, Some(0), "{second:?}");
            until_keys(&server, "e/", 0);
        }
    });
}

#[test]
fn refused_elections_print_as_in_etcdctl() {
    const TEST: &str = "locks_and_elections::refused_elections_print_as_in_etcdctl";
    let Some(etcdctl) = etcdctl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| {
        let server = Server::start(program);
        for arguments in [
            &["elect"][..],
            &["elect", "a"],
            &["elect", "a", "b", "c"],
            &["elect", "a", "b", "--listen"],
            &["elect", "-l"],
        ] {
            let [ours, theirs] = [OsStr::new(PORTCTL), etcdctl.as_os_str()]
                .map(|program| run(server.command(program).args(arguments), b""));
            assert_eq!(ours, theirs, "portctl, then etcdctl: {arguments:?}");
        }
    });
}
