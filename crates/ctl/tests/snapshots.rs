//! Snapshots: saved from a real server, looked at, restored, and served again.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use portunus_testkit::program::Program;
use support::{Ran, Server, for_each_server, free_address, portctl, run};

fn restore(snapshot: &Path, data_dir: &Path, peer: SocketAddr, more: &[&str]) -> Ran {
    let peer_url = format!("http://{peer}");
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
fn saved(program: &Program) -> (Server, std::path::PathBuf) {
    let server = Server::start(program);
    server.portctl(["put", "a", "1"]).ok();
    server.portctl(["put", "a", "2"]).ok();
    server.portctl(["put", "b", "x"]).ok();
    let path = server.path("saved.db");
    let said = server
        .portctl(["snapshot", "save", path.to_str().unwrap()])
        .ok();
    let expected = format!("Snapshot saved at {}\nServer version ", path.display());
    assert!(said.starts_with(&expected), "{said}");
    (server, path)
}

#[test]
fn saved_snapshot_is_private_complete_and_has_a_status() {
    for_each_server("snapshots::a_saved_snapshot", |program| {
        let (server, path) = saved(program);
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
    });
}

#[test]
fn restored_snapshot_is_a_new_cluster_with_the_same_keys() {
    for_each_server("snapshots::a_restored_snapshot", |program| {
        let (old, snapshot) = saved(program);
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("restored");
        let peer = free_address();
        restore(&snapshot, &data_dir, peer, &[]).ok();
        let mode = fs::metadata(data_dir.join("member"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);

        let mut new = Server::start_on(program, directory, data_dir, peer);
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
    });
}

#[test]
fn bumped_revision_compacts_earlier_history() {
    for_each_server("snapshots::a_bumped_revision", |program| {
        let (_old, snapshot) = saved(program);
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("restored");
        let peer = free_address();
        let bump = ["--bump-revision=1000", "--mark-compacted"];
        restore(&snapshot, &data_dir, peer, &bump).ok();
        let new = Server::start_on(program, directory, data_dir, peer);
        assert_eq!(new.portctl(["get", "a"]).ok(), "a\n2\n");
        let fields = new.portctl(["get", "a", "-w", "fields"]).ok();
        assert!(fields.contains("\"Revision\" : 1004\n"), "{fields}");
        let old_revision = new.portctl(["get", "a", "--rev", "3"]);
        assert!(
            old_revision
                .err
                .contains("required revision has been compacted")
        );
    });
}

#[test]
fn restore_refuses_damaged_snapshots_and_existing_directories() {
    for_each_server("snapshots::a_restore_refuses", |program| {
        let (server, snapshot) = saved(program);
        let target = |name: &str| server.path(name);
        let unused = free_address();
        let refused = |ran: Ran, message: &str| {
            assert_eq!(ran.code, Some(1), "{ran:?}");
            assert!(ran.err.contains(message), "{ran:?}");
        };

        let occupied = target("occupied");
        fs::create_dir(&occupied).unwrap();
        fs::write(occupied.join("file"), "").unwrap();
        refused(
            restore(&snapshot, &occupied, unused, &[]),
            "not empty or could not be read",
        );

        let mut bytes = fs::read(&snapshot).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let damaged = target("damaged.db");
        fs::write(&damaged, &bytes).unwrap();
        refused(
            restore(&damaged, &target("r1"), unused, &[]),
            "digest does not match",
        );

        let copied = target("copied.db");
        let whole = fs::read(&snapshot).unwrap();
        fs::write(&copied, &whole[..whole.len() - 32]).unwrap();
        let missing = "snapshot missing hash but --skip-hash-check=false";
        refused(restore(&copied, &target("r2"), unused, &[]), missing);
        assert!(restore(&copied, &target("r2"), unused, &["--skip-hash-check"]).success);
        assert!(target("r2").join("member/snap/db").exists());

        let other_name = restore(&snapshot, &target("r3"), unused, &["--name", "m2"]);
        refused(other_name, "couldn't find local name \"m2\"");
        assert!(!target("r1").exists() && !target("r3").exists());
    });
}
