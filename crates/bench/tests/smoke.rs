//! Smoke runs of the comparison: of Portunus alone, of some workloads with etcd, of three members,
//! and with authentication and TLS.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use portunus_testkit::go::{Tool, find_for_test};
use portunus_testkit::program::Program;
use serde_json::Value;

/// Serialises the comparisons: starved members hold elections during the measurement.
static TURN: Mutex<()> = Mutex::new(());

fn compare(args: &[&str]) -> Output {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn smoke_run_measures_every_workload_without_failed_requests() {
    let portunus = Program::portunus().path;
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let output = compare(&[
        "--smoke",
        "--peer",
        "/nowhere/etcd",
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
    assert!(stderr.contains("scripts/go-etcd"), "{stderr}");
    assert!(stdout.contains("fdatasync"), "{stdout}");

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
        "list",
        "txn-create",
        "txn-update",
        "txn-delete",
        "mixed",
        "watch-1",
        "watch-1000",
        "lease",
        "lease-keepalive",
        "restart-killed",
        "big-load",
        "big-asked",
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
fn comparison_with_etcd_prints_ratios_as_json_lines() {
    const TEST: &str = "comparison_with_etcd_prints_ratios_as_json_lines";
    let Some(etcd) = find_for_test(Tool::Etcd, TEST) else {
        return;
    };
    let portunus = Program::portunus().path;
    let output = compare(&[
        "--smoke",
        "--only=put-100,list,txn,mixed,watch-100,lease,big",
        "-w=json",
        "--portunus",
        portunus.to_str().unwrap(),
        "--peer",
        etcd.to_str().unwrap(),
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 12, "{stdout}");
    for line in lines {
        for number in ["clients", "portunus", "etcd", "ratio", "rss_ratio"] {
            assert!(line[number].as_f64().unwrap() > 0.0, "{number} in {line}");
        }
        assert_eq!(line["failures"], 0, "{line}");
        assert!(line["op"].is_string() && line["unit"].is_string(), "{line}");
    }
}

#[test]
fn smoke_run_with_auth_has_no_failed_requests() {
    const TEST: &str = "smoke_run_with_auth_has_no_failed_requests";
    run_in_mode(&["--auth"], "--auth", TEST);
}

#[test]
fn smoke_run_with_tls_has_no_failed_requests() {
    const TEST: &str = "smoke_run_with_tls_has_no_failed_requests";
    run_in_mode(&["--tls"], "--tls", TEST);
    run_in_mode(&["--auth", "--tls"], "--auth --tls", TEST);
}

/// Runs some workloads of one and of three members in a mode.
fn run_in_mode(flags: &[&str], mode: &str, test: &str) {
    let portunus = Program::portunus().path;
    let etcd = find_for_test(Tool::Etcd, test);
    let peer = etcd.as_deref().unwrap_or(Path::new("/nowhere/etcd"));
    for (members, only, expected) in [
        (
            "--members=1",
            "--only=put-100,get,range,txn-delete,mixed,watch-100,lease,restart-load",
            10,
        ),
        ("--members=3", "--only=put-100,get", 3),
    ] {
        let mut args = vec!["--smoke", members, only];
        args.extend(flags);
        args.extend(["--portunus", portunus.to_str().unwrap()]);
        args.extend(["--peer", peer.to_str().unwrap()]);
        let output = compare(&args);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{stdout}\n{stderr}");
        let title = format!("{mode}: ");
        let titles = stdout.lines().filter(|line| line.starts_with(&title));
        assert!(titles.count() >= expected, "{stdout}");
        assert!(!stdout.contains("FAILED"), "{stdout}");
        assert_eq!(stdout.contains("portunus / etcd"), etcd.is_some());
    }
}

#[test]
fn three_members_lose_their_leader_and_add_a_fourth_member() {
    const TEST: &str = "three_members_lose_their_leader_and_add_a_fourth_member";
    let portunus = Program::portunus().path;
    let etcd = find_for_test(Tool::Etcd, TEST);
    let output = compare(&[
        "--members=3",
        "--smoke",
        "--only=put-100,leader-change,leader-stop,snapshot-to-new-member",
        "-w=json",
        "--portunus",
        portunus.to_str().unwrap(),
        "--peer",
        etcd.as_deref()
            .unwrap_or(Path::new("/nowhere/etcd"))
            .to_str()
            .unwrap(),
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = lines
        .iter()
        .map(|line| line["op"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "put-100",
            "put-100-leader",
            "leader-change",
            "leader-stop",
            "snapshot-to-new-member"
        ]
    );
    for line in &lines {
        assert_eq!(line["failures"], 0, "{line}");
        assert!(line["portunus"].as_f64().unwrap() > 0.0, "{line}");
        let is_duration = line["portunus_detail"]["worst_us"].is_number();
        assert_eq!(is_duration, line["unit"] != "puts/s", "{line}");
        if etcd.is_some() {
            assert!(line["ratio"].as_f64().unwrap() > 0.0, "{line}");
            assert_eq!(line["time_ratio"].is_number(), is_duration, "{line}");
        }
    }
    let snapshot = &lines[4]["portunus_detail"];
    assert!(snapshot["sender_extra_rss_bytes"].is_number(), "{snapshot}");
}

#[test]
fn missing_server_binary_is_an_error_with_the_build_command() {
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
fn unknown_workload_is_refused_by_name() {
    let output = compare(&["--only", "nonsense"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("`nonsense`"), "{stderr}");
}
