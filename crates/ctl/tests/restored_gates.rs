//! Three members restored from a snapshot that was saved while a cluster feature was on.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::Path;

use portunus_testkit::program::Program;
use support::cluster::{Cluster, MECHANISM};
use support::{portctl, run};

const YES: &[&str] = &[MECHANISM, "--cluster-feature-gates=ApplyTag=true"];
const NO: &[&str] = &[MECHANISM, "--cluster-feature-gates=ApplyTag=false"];

fn until_on(cluster: &Cluster) {
    let asked = &["endpoint", "featuregate", "ApplyTag"];
    cluster.until(asked, |ran| ran.out == "true\n");
}

fn value(cluster: &Cluster, key: &str) -> String {
    cluster.portctl(["get", key, "--print-value-only"]).ok()
}

/// A new cluster of three that is restored from a snapshot and does not run yet.
fn restored(snapshot: &Path) -> Cluster {
    let cluster = Cluster::prepare(&Program::portunus(), 3);
    for at in 0..3 {
        let mut restore = portctl();
        restore.args(["snapshot", "restore"]).arg(snapshot);
        restore.arg("--data-dir").arg(cluster.data_dir(at));
        let node = &cluster.members[at];
        restore.args(["--name", &node.name]);
        restore.args(["--initial-cluster", &cluster.initial_cluster()]);
        restore.args(["--initial-advertise-peer-urls", &node.peer_url()]);
        run(&mut restore, b"").ok();
    }
    cluster
}

/// The new cluster inherits keys and version, and no decision: what is on follows from its
/// own members' flags.
/// Proves: S0-A20
#[test]
fn restored_cluster_decides_its_features_again() {
    let mut old = Cluster::start(&[YES, YES, YES]);
    until_on(&old);
    old.portctl(["put", "/apply-tag/a", "old"]).ok();
    let tagged = value(&old, "/apply-tag/a");
    assert!(tagged.starts_with("old@"), "{tagged}");
    let snapshot = old.path("saved.db");
    let save = [
        "--endpoints",
        &old.members[0].endpoint(),
        "snapshot",
        "save",
    ];
    run(old.command().args(save).arg(&snapshot), b"").ok();
    old.stop_all();

    // One of the new members sets it to false: it is never on.
    let mut new = restored(&snapshot);
    new.start_all(&[YES, YES, NO]);
    let explained = new.until(&["gate", "explain", "ApplyTag"], |ran| {
        ran.out
            .contains("m3 set it to false, and one veto is enough")
    });
    assert!(
        explained.out.contains("at        cluster version 3.8"),
        "{explained:?}"
    );
    assert_eq!(value(&new, "/apply-tag/a"), tagged);
    new.portctl(["put", "/apply-tag/b", "plain"]).ok();
    assert_eq!(value(&new, "/apply-tag/b"), "plain\n");
    let history = new.portctl(["gate", "history"]).ok();
    assert!(!history.contains("ApplyTag=true"), "{history}");
    drop(new);

    // With the flags of the old cluster it is on again, by a decision of the new one.
    let mut new = restored(&snapshot);
    new.start_all(&[YES, YES, YES]);
    until_on(&new);
    new.portctl(["put", "/apply-tag/b", "new"]).ok();
    assert!(value(&new, "/apply-tag/b").starts_with("new@"));
    let history = new.portctl(["gate", "history"]).ok();
    assert_eq!(history.matches("ApplyTag=true").count(), 1, "{history}");
    // A proposal against it takes effect from then on.
    new.restart(2, NO);
    let asked = &["endpoint", "featuregate", "ApplyTag"];
    new.until(asked, |ran| ran.out == "false\n");
    new.stop_all();

    // Its data is of the old one's version, and no earlier one is started on it by mistake.
    let early = new.refusal(0, &["--emulated-version=3.7"]);
    assert!(
        early.err.contains("the cluster version is 3.8, above 3.7"),
        "{early:?}"
    );
}
