//! `portctl migrate` on directories of real members.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::Path;

use portunus_bolt::Reader;
use portunus_testkit::program::Program;
use support::cluster::{Cluster, MECHANISM};
use support::{Ran, portctl, run};

const WANTS_BOTH: &str = "--cluster-feature-gates=ApplyTag=true,LogCompression=true";
const AS_3_6: &str = "--emulated-version=3.6";
const AS_3_7: &str = "--emulated-version=3.7";

fn migrate(dir: &Path, target: &str, more: &[&str]) -> Ran {
    let mut command = portctl();
    command.arg("migrate").arg("--data-dir").arg(dir);
    run(command.args(["--target-version", target]).args(more), b"")
}

#[track_caller]
fn refused(ran: &Ran, why: &str) {
    assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains(why), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

fn until_on(cluster: &Cluster, feature: &str) {
    let asked = &["endpoint", "featuregate", feature];
    cluster.until(asked, |ran| ran.out == "true\n");
}

/// What a member stores about its cluster, and the members it knows.
fn stored(cluster: &Cluster, name: &str) -> (Vec<(String, String)>, String) {
    let path = cluster.path(name);
    let endpoint = cluster.members[0].endpoint();
    let save = ["--endpoints", &endpoint, "snapshot", "save"];
    run(cluster.command().args(save).arg(&path), b"").ok();
    let reader = Reader::open(&path).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = |bucket: &str| -> Vec<(String, String)> {
        let bucket = reader.bucket(bucket.as_bytes()).unwrap().unwrap();
        let pairs = bucket.iter().map(Result::unwrap);
        pairs.map(|(key, value)| (text(key), text(value))).collect()
    };
    let members = all("members").into_iter().map(|(_, json)| json);
    (all("cluster"), members.collect())
}

/// A cluster that used features goes back to a version without them, all members at once, and
/// forth again.
/// Proves: S0-8, S0-38
#[test]
fn stopped_cluster_is_migrated_to_a_version_without_features() {
    let flags = [MECHANISM, WANTS_BOTH];
    let mut cluster = Cluster::start(&[&flags, &flags, &flags]);
    until_on(&cluster, "LogCompression");
    let value = "long and dull ".repeat(100);
    cluster.portctl(["put", "/apply-tag/a", &value]).ok();
    let (before, members) = stored(&cluster, "before.db");
    for kept in ["clusterParams", "applyTag"] {
        assert!(before.iter().any(|(key, _)| key == kept), "{kept}");
    }
    assert!(members.contains("proposedClusterParams"), "{members}");

    // Not while a member runs on the directory.
    let running = migrate(&cluster.data_dir(0), "3.6", &[]);
    refused(&running, "is in use by another process: stop it");
    cluster.stop_all();
    let early = cluster.refusal(0, &[AS_3_6]);
    assert!(
        !early.success && early.err.contains("portctl migrate"),
        "{early:?}"
    );

    for at in 0..3 {
        let json = migrate(&cluster.data_dir(at), "3.6", &["-w", "json"]).ok();
        for part in [
            r#"{"storageVersionBefore":"3.8","storageVersion":"3.6","clusterVersion":"3.6","#,
            r#""removedFeatures":["ApplyTag","#,
        ] {
            assert!(json.contains(part), "{json}");
        }
        let again = migrate(&cluster.data_dir(at), "3.6", &[]).ok();
        assert_eq!(
            again,
            "storage version 3.6 is up to date\ncluster version 3.6\n"
        );
    }
    cluster.start_all(&[&[AS_3_6], &[AS_3_6], &[AS_3_6]]);
    let (after, members) = stored(&cluster, "after.db");
    assert_eq!(after, [("clusterVersion".to_owned(), "3.6.0".to_owned())]);
    assert!(!members.contains("proposedClusterParams"), "{members}");
    let history = cluster.portctl(["gate", "history"]);
    assert!(
        history.err.contains("does not support that request"),
        "{history:?}"
    );
    let found = cluster
        .portctl(["get", "/apply-tag/a", "--print-value-only"])
        .ok();
    assert!(found.starts_with(&value) && found.contains(" @"), "{found}");
    cluster.portctl(["put", "/apply-tag/b", "plain"]).ok();

    // Up again, one minor at a time; the cluster decides anew, from flags.
    cluster.stop_all();
    for at in 0..3 {
        let raised = migrate(&cluster.data_dir(at), "3.7", &[]).ok();
        assert_eq!(raised, "storage version 3.6 -> 3.7\ncluster version 3.6\n");
    }
    let skipped = cluster.refusal(0, &flags);
    assert!(
        !skipped.success && skipped.err.contains("--emulated-version=3.7"),
        "{skipped:?}"
    );
    let as_3_7 = [MECHANISM, AS_3_7];
    cluster.start_all(&[&as_3_7, &as_3_7, &as_3_7]);
    cluster.until(&["gate", "history"], |ran| ran.out.contains(", 3.7, "));
    cluster.stop_all();
    cluster.start_all(&[&flags, &flags, &flags]);
    until_on(&cluster, "ApplyTag");
    let found = cluster
        .portctl(["get", "/apply-tag/b", "--print-value-only"])
        .ok();
    assert_eq!(found, "plain\n");
    let health = cluster.portctl(["endpoint", "hashkv"]).ok();
    let hashes = health.lines().map(|line| line.split(", ").nth(1).unwrap());
    let hashes: std::collections::BTreeSet<&str> = hashes.collect();
    assert_eq!(hashes.len(), 1, "{health}");
}

/// One minor down, only what is newer goes.
/// Proves: S0-38
#[test]
fn migration_keeps_features_of_the_target_version() {
    let mut cluster = Cluster::prepare(&Program::portunus(), 1);
    let (dir, wal) = (cluster.data_dir(0), cluster.path("wal"));
    let at_wal = ["--wal-dir", wal.to_str().unwrap()];
    let start = |cluster: &mut Cluster, flags: &[&str]| {
        let flags: Vec<&str> = flags.iter().chain(&at_wal).copied().collect();
        cluster.start_all(&[&flags]);
    };
    start(&mut cluster, &[MECHANISM, WANTS_BOTH]);
    until_on(&cluster, "LogCompression");
    cluster.stop_all();
    refused(&migrate(&dir, "3.7", &[]), "failed to open wal: ");
    // Not even where nothing else asks for the log.
    refused(&migrate(&dir, "3.9", &["--force"]), "failed to open wal: ");
    let table = migrate(&dir, "3.7", &["-w", "table"]);
    assert_eq!(table.code, Some(4), "{table:?}");
    let done = migrate(&dir, "3.7", &at_wal).ok();
    let expected = "storage version 3.8 -> 3.7\ncluster version 3.7\nremoved: LogCompression\n";
    assert_eq!(done, expected);
    let wants_one = "--cluster-feature-gates=ApplyTag=true";
    start(
        &mut cluster,
        &[MECHANISM, "--emulated-version=3.7", wants_one],
    );
    until_on(&cluster, "ApplyTag");
    let history = cluster.portctl(["gate", "history"]).ok();
    let migrated = "-, 3.7, -, LogCompression=false, migrated offline from 3.8 to 3.7";
    assert!(history.contains(migrated), "{history}");

    // As far down as it goes, where no version is written down.
    cluster.stop_all();
    let done = migrate(&dir, "3.5", &at_wal).ok();
    assert!(
        done.starts_with("storage version 3.7 -> 3.5\ncluster version 3.5\n"),
        "{done}"
    );
    let again = migrate(&dir, "3.5", &at_wal).ok();
    assert!(
        again.starts_with("storage version 3.5 is up to date\n"),
        "{again}"
    );
    start(&mut cluster, &["--emulated-version=3.5"]);
    cluster.portctl(["put", "a", "b"]).ok();
}

/// What etcdutl refuses is refused with its texts, and what would be lost is not migrated.
#[test]
fn unsupported_migration_is_refused() {
    // The backend commits nothing before the stop, so after a kill everything is in the log only.
    let late = "--backend-batch-interval=1h";
    let flags = [MECHANISM, WANTS_BOTH, late];
    let mut cluster = Cluster::start(&[&flags]);
    cluster.portctl(["put", "a", "b"]).ok();
    cluster.members[0].kill();
    let dir = cluster.data_dir(0);
    let missing = migrate(&cluster.path("nowhere"), "3.6", &[]);
    refused(&missing, "holds no data of a member");
    assert!(!cluster.path("nowhere").exists());
    let bad = migrate(&dir, "3.6.0", &[]);
    assert_eq!(bad.code, Some(128));
    assert!(bad.err.contains("wrong target version format"), "{bad:?}");
    let unknown = migrate(&dir, "3.6", &[]);
    refused(
        &unknown,
        "cannot detect storage schema version: missing term information",
    );

    cluster.start_all(&[&flags]);
    until_on(&cluster, "ApplyTag");
    cluster.stop_all();
    cluster.start_all(&[&[MECHANISM, late]]);
    cluster.members[0].kill();
    refused(
        &migrate(&dir, "3.6", &[]),
        "cannot downgrade storage, WAL contains newer entries, as the target version (3.6.0) is \
         lower than the version (3.8.0) detected from WAL logs: start the members once more",
    );
    refused(
        &migrate(&dir, "4.0", &[]),
        "changing major storage version is not supported",
    );
    refused(
        &migrate(&dir, "3.9", &[]),
        "version \"3.9.0\" is not supported",
    );
    let forced = migrate(&dir, "3.9", &["--force"]).ok();
    let last = "storage version 3.8 -> 3.9\ncluster version 3.8\n";
    assert!(
        forced.starts_with("overruled: cannot create") && forced.ends_with(last),
        "{forced}"
    );

    // A directory that only etcd's tools understand.
    let snapshot = cluster.path("saved.db");
    cluster.start_all(&[&[MECHANISM]]);
    run(
        cluster.command().args(["snapshot", "save"]).arg(&snapshot),
        b"",
    )
    .ok();
    let restored = cluster.path("restored");
    let mut restore = portctl();
    restore.args(["snapshot", "restore"]).arg(&snapshot);
    run(restore.arg("--data-dir").arg(&restored), b"").ok();
    refused(
        &migrate(&restored, "3.6", &[]),
        "holds data of etcd that Portunus has not taken over",
    );
}
