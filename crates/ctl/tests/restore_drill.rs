//! The restore drill: a snapshot of either server, restored with either tool, for one and for
//! three members, serves everything that was in it, takes writes, and comes back after a stop.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use portunus_testkit::go::{Tool, find_for_test};
use portunus_testkit::program::Program;
use support::cluster::Cluster;
use support::{Server, clean, portctl, run};

const BUMP: &[&str] = &["--bump-revision", "1000", "--mark-compacted"];

#[derive(Debug, Clone, Copy)]
enum Restorer {
    Portctl,
    Etcdutl,
}

/// Both tools; without etcdutl there is nothing to prove.
fn restorers(test: &str) -> Option<[(Restorer, PathBuf); 2]> {
    let etcdutl = find_for_test(Tool::Etcdutl, test)?;
    let portctl = PathBuf::from(portctl().get_program());
    Some([(Restorer::Portctl, portctl), (Restorer::Etcdutl, etcdutl)])
}

/// A member with three revisions of keys, and its snapshot.
struct Saved {
    _directory: tempfile::TempDir,
    snapshot: PathBuf,
}

/// From Go's etcd.
fn saved_by_go(test: &str) -> Option<Saved> {
    let server = Server::start(&Program::etcd(test)?);
    let directory = tempfile::tempdir().unwrap();
    let snapshot = directory.path().join("saved.db");
    for (key, value) in [("a", "1"), ("a", "2"), ("b", "x")] {
        server.portctl(["put", key, value]).ok();
    }
    let path = snapshot.to_str().unwrap().to_owned();
    server.portctl(["snapshot", "save", &path]).ok();
    Some(Saved {
        _directory: directory,
        snapshot,
    })
}

/// From a Portunus cluster of three with these flags.
fn saved_by_portunus(flags: &[&str]) -> Saved {
    let cluster = Cluster::start(&[flags, flags, flags]);
    let directory = tempfile::tempdir().unwrap();
    let snapshot = directory.path().join("saved.db");
    for (key, value) in [("a", "1"), ("a", "2"), ("b", "x")] {
        cluster.portctl(["put", key, value]).ok();
    }
    let save = [
        "--endpoints",
        &cluster.members[0].endpoint(),
        "snapshot",
        "save",
    ];
    run(cluster.command().args(save).arg(&snapshot), b"").ok();
    Saved {
        _directory: directory,
        snapshot,
    }
}

/// Restores a snapshot for every member of a cluster that does not run yet.
fn restore(cluster: &Cluster, program: &Path, snapshot: &Path, more: &[&str]) {
    for (at, node) in cluster.members.iter().enumerate() {
        let mut command = clean(Command::new(program));
        command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(cluster.data_dir(at))
            .args(["--name", &node.name])
            .args(["--initial-cluster", &cluster.initial_cluster()])
            .args(["--initial-advertise-peer-urls", &node.peer_url()])
            .args(more);
        run(&mut command, b"").ok();
    }
}

/// Everything of the snapshot is served, writes are taken, and both survive a stop.
fn drill(saved: &Saved, (restorer, program): &(Restorer, PathBuf), members: usize, more: &[&str]) {
    let case = format!("{restorer:?}, {members} members, {more:?}");
    let mut cluster = Cluster::prepare(&Program::portunus(), members);
    restore(&cluster, program, &saved.snapshot, more);
    let flags: Vec<&[&str]> = vec![&[]; members];
    cluster.start_all(&flags);
    assert_eq!(
        cluster.portctl(["get", "", "--prefix"]).ok(),
        "a\n2\nb\nx\n",
        "{case}"
    );
    let listed = cluster.portctl(["member", "list"]).ok();
    assert_eq!(listed.lines().count(), members, "{case}: {listed}");
    let revision = 4 + if more.is_empty() { 0 } else { 1000 };
    let fields = cluster.portctl(["get", "a", "-w", "fields"]).ok();
    let expected = format!("\"Revision\" : {revision}\n");
    assert!(fields.contains(&expected), "{case}: {fields}");
    let old = cluster.portctl(["get", "a", "--rev", "2"]);
    match more.is_empty() {
        true => assert_eq!(old.ok(), "a\n1\n", "{case}"),
        false => assert!(
            old.err.contains("required revision has been compacted"),
            "{case}: {old:?}"
        ),
    }
    cluster.portctl(["put", "c", "3"]).ok();
    cluster.stop_all();
    cluster.start_all(&flags);
    let all = cluster.portctl(["get", "", "--prefix"]).ok();
    assert_eq!(all, "a\n2\nb\nx\nc\n3\n", "{case}");
    let one = cluster.members[members - 1].endpoint();
    let hash = ["--endpoints", &one, "endpoint", "hashkv"];
    cluster.until(&hash, |ran| ran.success);
}

#[test]
fn go_snapshot_serves_after_restore_by_either_tool() {
    const TEST: &str = "restore_drill::a_snapshot_of_go";
    let Some(restorers) = restorers(TEST) else {
        return;
    };
    let Some(saved) = saved_by_go(TEST) else {
        return;
    };
    for restorer in &restorers {
        for members in [1, 3] {
            for more in [&[][..], BUMP] {
                drill(&saved, restorer, members, more);
            }
        }
    }
}

#[test]
fn portunus_snapshot_serves_after_restore_by_either_tool() {
    const TEST: &str = "restore_drill::a_snapshot_of_portunus";
    let Some(restorers) = restorers(TEST) else {
        return;
    };
    let saved = saved_by_portunus(&[]);
    for restorer in &restorers {
        for members in [1, 3] {
            for more in [&[][..], BUMP] {
                drill(&saved, restorer, members, more);
            }
        }
    }
}

/// The way back: what Portunus wrote as 3.7 is served by Go's etcd.
#[test]
fn snapshot_of_an_emulated_version_serves_in_go() {
    const TEST: &str = "restore_drill::a_snapshot_of_an_emulated_version";
    let (Some(restorers), Some(etcd)) = (restorers(TEST), Program::etcd(TEST)) else {
        return;
    };
    let saved = saved_by_portunus(&["--emulated-version=3.7"]);
    for (restorer, program) in &restorers {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("restored");
        let peer = support::free_address();
        let peer_url = format!("http://{peer}");
        let mut command = clean(Command::new(program));
        command
            .args(["snapshot", "restore"])
            .arg(&saved.snapshot)
            .arg("--data-dir")
            .arg(&data_dir)
            .args(["--name", "m1"])
            .args(["--initial-cluster", &format!("m1={peer_url}")])
            .args(["--initial-advertise-peer-urls", &peer_url]);
        run(&mut command, b"").ok();
        let server = Server::start_on(&etcd, directory, data_dir, peer);
        let all = server.portctl(["get", "", "--prefix"]).ok();
        assert_eq!(all, "a\n2\nb\nx\n", "{restorer:?}");
        assert_eq!(server.portctl(["put", "c", "3"]).ok(), "OK\n");
    }
}
