//! The whole comparison, very shortly, against Portunus alone.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn compare(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(args)
        .output()
        .unwrap()
}

/// The server of this or the other profile. Another crate's binary has no variable of its
/// own, so it is looked for where cargo puts it.
fn portunus() -> Option<PathBuf> {
    let profile_dir = Path::new(env!("CARGO_BIN_EXE_compare")).parent()?;
    let target_dir = profile_dir.parent()?;
    let candidates = [
        profile_dir.join("portunus"),
        target_dir.join("release/portunus"),
    ];
    candidates.into_iter().find(|path| path.is_file())
}

#[test]
fn a_smoke_run_measures_every_workload_without_a_failed_request() {
    let Some(portunus) = portunus() else {
        eprintln!("SKIPPED: no portunus binary; run `cargo build -p portunus-server` first");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let output = compare(&[
        "--smoke",
        "--portunus",
        portunus.to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
    ]);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stderr.contains("NO ETCD TO COMPARE WITH"), "{stderr}");

    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let outcomes = report["outcomes"].as_array().unwrap();
    let names: Vec<&str> = outcomes
        .iter()
        .map(|o| o["workload"].as_str().unwrap())
        .collect();
    for expected in [
        "put-1000",
        "get",
        "range",
        "txn",
        "watch",
        "lease",
        "restart-killed",
    ] {
        assert!(
            names.contains(&expected),
            "{expected} is missing in {names:?}"
        );
    }
    for outcome in outcomes {
        let sample = &outcome["servers"][0]["samples"][0];
        assert!(sample["operations"].as_u64().unwrap() > 0, "{outcome}");
        assert_eq!(sample["failures"], 0, "{outcome}");
        assert!(sample["resident_bytes"].as_u64().unwrap() > 0, "{outcome}");
        assert!(
            stdout.contains(outcome["title"].as_str().unwrap()),
            "{stdout}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_says_how_to_get_it() {
    let output = compare(&["--smoke", "--portunus", "/nowhere/portunus"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("/nowhere/portunus"), "{stderr}");
    assert!(
        stderr.contains("cargo build --release -p portunus-server"),
        "{stderr}"
    );
}

#[test]
fn a_workload_that_does_not_exist_is_refused_by_name() {
    let output = compare(&["--only", "nonsense"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("`nonsense`"), "{stderr}");
}
