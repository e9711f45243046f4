//! Snapshots: saved from a real server, looked at, restored, and served again.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::{Ran, Server, free_port, portctl, run};

fn restore(snapshot: &Path, data_dir: &Path, peer_port: u16, more: &[&str]) -> Ran {
    let peer_url = format!("http://127.0.0.1:{peer_port}");
    let mut command = portctl();
    command
        .args(["snapshot", "restore"])
        .arg(snapshot)
        .arg("--data-dir")
        .arg(data_dir)
        .args([
            "--name",
            "m1",
            "--initial-cluster",
            &format!("m1={peer_url}"),
        ])
        .args(["--initial-advertise-peer-urls", &peer_url])
        .args(more);
    run(&mut command, b"")
}

/// A server with three revisions, and a snapshot of it.
fn saved(test: &str) -> Option<(Server, std::path::PathBuf)> {
    let server = Server::start(test)?;
    server.portctl(["put", "a", "1"]).ok();
    server.portctl(["put", "a", "2"]).ok();
    server.portctl(["put", "b", "x"]).ok();
    let path = server.path("saved.db");
    let said = server
        .portctl(["snapshot", "save", path.to_str().unwrap()])
        .ok();
    let expected = format!("Snapshot saved at {}\nServer version ", path.display());
    assert!(said.starts_with(&expected), "{said}");
    Some((server, path))
}

#[test]
fn a_saved_snapshot_is_private_whole_and_described() {
    let Some((server, path)) = saved("snapshots::a_saved_snapshot") else {
        return;
    };
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!server.path("saved.db.part").exists());
    let status = server
        .portctl(["snapshot", "status", path.to_str().unwrap()])
        .ok();
    let cells: Vec<&str> = status.trim_end().split(", ").collect();
    assert_eq!(cells[1..3], ["4", "2"], "{status}");

    let multiple = server.portctl(["--endpoints=a:1,b:2", "snapshot", "save", "x"]);
    assert_eq!(multiple.code, Some(5));
    assert!(
        multiple
            .err
            .contains("must be requested to one selected node, not multiple [a:1 b:2]")
    );
}

#[test]
fn a_restored_snapshot_is_a_new_cluster_with_the_old_keys() {
    const TEST: &str = "snapshots::a_restored_snapshot";
    let Some((old, snapshot)) = saved(TEST) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("restored");
    let peer_port = free_port();
    restore(&snapshot, &data_dir, peer_port, &[]).ok();
    let mode = fs::metadata(data_dir.join("member"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);

    let Some(mut new) = Server::start_on(TEST, directory, data_dir, peer_port) else {
        return;
    };
    let header = |server: &Server| {
        let json = server.portctl(["member", "list", "-w", "json"]).ok();
        json.split(',').next().unwrap().to_owned()
    };
    assert_ne!(
        header(&old),
        header(&new),
        "the cluster id must be a new one"
    );
    assert_eq!(new.portctl(["get", "", "--prefix"]).ok(), "a\n2\nb\nx\n");
    assert_eq!(new.portctl(["get", "a", "--rev", "2"]).ok(), "a\n1\n");
    assert_eq!(new.portctl(["put", "c", "3"]).ok(), "OK\n");
    // What the new cluster wrote survives, so its log and its store fit together.
    new.restart();
    assert_eq!(
        new.portctl(["get", "", "--prefix"]).ok(),
        "a\n2\nb\nx\nc\n3\n"
    );
}

#[test]
fn a_bumped_revision_hides_the_history_it_came_from() {
    const TEST: &str = "snapshots::a_bumped_revision";
    let Some((_old, snapshot)) = saved(TEST) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("restored");
    let peer_port = free_port();
    let bump = ["--bump-revision=1000", "--mark-compacted"];
    restore(&snapshot, &data_dir, peer_port, &bump).ok();
    let Some(new) = Server::start_on(TEST, directory, data_dir, peer_port) else {
        return;
    };
    assert_eq!(new.portctl(["get", "a"]).ok(), "a\n2\n");
    let fields = new.portctl(["get", "a", "-w", "fields"]).ok();
    assert!(fields.contains("\"Revision\" : 1004\n"), "{fields}");
    let old_revision = new.portctl(["get", "a", "--rev", "3"]);
    assert!(
        old_revision
            .err
            .contains("required revision has been compacted")
    );
}

#[test]
fn a_restore_refuses_what_it_cannot_trust_or_would_overwrite() {
    let Some((server, snapshot)) = saved("snapshots::a_restore_refuses") else {
        return;
    };
    let target = |name: &str| server.path(name);
    let refused = |ran: Ran, message: &str| {
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains(message), "{ran:?}");
    };

    let occupied = target("occupied");
    fs::create_dir(&occupied).unwrap();
    fs::write(occupied.join("file"), "").unwrap();
    refused(
        restore(&snapshot, &occupied, 1, &[]),
        "not empty or could not be read",
    );

    let mut bytes = fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = target("damaged.db");
    fs::write(&damaged, &bytes).unwrap();
    refused(
        restore(&damaged, &target("r1"), 1, &[]),
        "digest does not match",
    );

    let copied = target("copied.db");
    let whole = fs::read(&snapshot).unwrap();
    fs::write(&copied, &whole[..whole.len() - 32]).unwrap();
    let missing = "snapshot missing hash but --skip-hash-check=false";
    refused(restore(&copied, &target("r2"), 1, &[]), missing);
    assert!(restore(&copied, &target("r2"), 1, &["--skip-hash-check"]).success);
    assert!(target("r2").join("member/snap/db").exists());

    let other_name = restore(&snapshot, &target("r3"), 1, &["--name", "m2"]);
    refused(other_name, "couldn't find local name \"m2\"");
    assert!(!target("r1").exists() && !target("r3").exists());
}
