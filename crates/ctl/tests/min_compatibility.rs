//! What the minimum compatibility version keeps members from writing, as `gate explain` and
//! `gate plan` show it, and the flags that a version step makes members drop.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::Value;
use support::cluster::Cluster;

const WANTS_COMPRESSION: &str = "--cluster-feature-gates=LogCompression=true";
const NEWEST_ONLY: &str = "--min-compatibility-version=3.8";
const EXPLAIN: [&str; 3] = ["gate", "explain", "LogCompression"];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn explained(cluster: &Cluster) -> Value {
    json(&cluster.portctl(EXPLAIN.iter().chain(&["-w", "json"])).ok())
}

#[track_caller]
fn until_compression_is_on(cluster: &Cluster) {
    cluster.until(&["endpoint", "featuregate", "LogCompression"], |ran| {
        ran.out == "true\n"
    });
}

/// Proves: C27
#[test]
fn explanation_names_members_that_write_nothing_with_a_feature_that_is_on() {
    let mut cluster = Cluster::start(&[&[WANTS_COMPRESSION], &[WANTS_COMPRESSION]]);
    until_compression_is_on(&cluster);
    let told = cluster.portctl(EXPLAIN).ok();
    assert!(
        told.starts_with("LogCompression (cluster feature) is on: "),
        "{told}"
    );
    let note = "  note      no member that answers writes anything with it: only 3.8 and later \
                can read that, and the minimum compatibility version is 3.7 at m";
    assert!(told.contains(note), "{told}");
    let change = told.lines().find(|line| line.starts_with("  change    "));
    let change = change.unwrap();
    assert!(
        change.ends_with(" with --min-compatibility-version=3.8"),
        "{told}"
    );
    assert!(change.contains("m1") && change.contains("m2"), "{told}");
    let story = explained(&cluster);
    assert_eq!(story["readable_since"], "3.8");
    let members = story["not_written_by"].as_array().unwrap();
    assert_eq!(members.len(), 2, "{story}");
    assert_eq!(members[0]["min_compatibility_version"], "3.7");

    // The next command plans the change of the flag.
    let next = told.lines().last().unwrap();
    let next = next.strip_prefix("  next      ").unwrap();
    let plan = cluster.typed(next).ok();
    let begins = "LogCompression (written by m";
    assert!(plan.starts_with("cluster version: 3.8\n"), "{plan}");
    assert!(
        plan.contains(begins) && plan.contains("): no -> yes: "),
        "{plan}"
    );

    // One member that writes is enough for the note to name the other.
    cluster.restart(0, &[WANTS_COMPRESSION, NEWEST_ONLY]);
    let told = cluster.until(&EXPLAIN, |ran| {
        ran.out.contains("m2 writes nothing with it")
    });
    assert!(!told.out.contains("3.7 at m1"), "{told:?}");
    cluster.restart(1, &[WANTS_COMPRESSION, NEWEST_ONLY]);
    cluster.until(&EXPLAIN, |ran| ran.success && !ran.out.contains("  note  "));
    let story = explained(&cluster);
    assert_eq!(story["not_written_by"], Value::Array(Vec::new()), "{story}");

    // Back, as planned.
    let back = [
        "gate",
        "plan",
        "restart",
        "m1",
        "--min-compatibility-version=3.7",
        "-w",
        "json",
    ];
    let plan = json(&cluster.portctl(back).ok());
    let [row] = plan["writes"].as_array().unwrap().as_slice() else {
        panic!("{plan}");
    };
    let changed = (&row["member"], &row["before"], &row["after"]);
    assert_eq!(
        changed,
        (&"m1".into(), &true.into(), &false.into()),
        "{plan}"
    );
}

#[test]
fn plan_and_server_agree_on_minimum_compatibility_versions() {
    let mut cluster = Cluster::start(&[&[WANTS_COMPRESSION]]);
    until_compression_is_on(&cluster);
    let flag = |value: &str| format!("--min-compatibility-version={value}");
    let plan =
        |cluster: &Cluster, flag: &str| cluster.portctl(["gate", "plan", "restart", "m1", flag]);
    let range = |value| {
        format!("minimum compatibility version {value} is out of range: choose one from 3.5 to 3.8")
    };
    let form =
        |value| format!("--min-compatibility-version={value} cannot be used: it takes major.minor");
    let refused = [
        ("3.9", Some(7), range("3.9")),
        ("3.4", Some(7), range("3.4")),
        ("3.8.1", Some(128), form("3.8.1")),
        ("newest", Some(128), form("newest")),
    ];
    let plans: Vec<_> = refused
        .iter()
        .map(|it| plan(&cluster, &flag(it.0)))
        .collect();
    cluster.members[0].kill();
    for ((value, code, why), planned) in refused.iter().zip(plans) {
        assert_eq!(planned.code, *code, "{value}: {planned:?}");
        let told = planned.out + &planned.err;
        assert!(told.contains(why), "{value}: {told}");
        let started = cluster.refusal(0, &[WANTS_COMPRESSION, &flag(value)]);
        assert!(
            !started.success && started.err.contains(why),
            "{value}: {started:?}"
        );
    }
    for (value, is_written) in [("3.8", true), ("3.5", false)] {
        cluster.restart(0, &[WANTS_COMPRESSION, &flag("3.6")]);
        until_compression_is_on(&cluster);
        let planned = plan(&cluster, &flag(value)).ok();
        assert_eq!(
            planned.contains("(written by m1): no -> yes: "),
            is_written,
            "{planned}"
        );
        assert!(planned.ends_with("not blocked\n"), "{planned}");
        cluster.restart(0, &[WANTS_COMPRESSION, &flag(value)]);
        let story = explained(&cluster);
        let unwritten = story["not_written_by"].as_array().unwrap().len();
        assert_eq!(unwritten == 0, is_written, "{story}");
    }
}

/// A flag that the target version does not take is no obstacle: the plan lists it, succeeds, and
/// the member starts without it and only without it.
///
/// Proves: C29
#[test]
fn downgrade_can_be_done_once_the_listed_flags_are_dropped() {
    const AS_3_7: &str = "--emulated-version=3.7";
    let mut cluster = Cluster::start(&[&[WANTS_COMPRESSION, NEWEST_ONLY]]);
    until_compression_is_on(&cluster);
    let downgrade = ["gate", "plan", "downgrade", "3.7"];
    let text = cluster.portctl(downgrade).ok();
    let verdict = "downgrade to 3.7: not blocked once these flags are dropped\n";
    assert!(text.ends_with(verdict), "{text}");
    let plan = json(
        &cluster
            .portctl(downgrade.iter().chain(&["-w", "json"]))
            .ok(),
    );
    assert_eq!(plan["blocked"], false, "{plan}");
    let flags = plan["flags_to_drop"].as_array().unwrap();
    let flags: Vec<_> = flags
        .iter()
        .map(|it| (&it["flag"], &it["feature"]))
        .collect();
    let expected = [
        (&"--min-compatibility-version".into(), &Value::Null),
        (&"--cluster-feature-gates".into(), &"LogCompression".into()),
    ];
    assert_eq!(flags, expected, "{plan}");

    cluster.portctl(["downgrade", "enable", "3.7"]).ok();
    cluster.members[0].kill();
    for kept in [WANTS_COMPRESSION, NEWEST_ONLY] {
        let refused = cluster.refusal(0, &[AS_3_7, kept]);
        assert!(!refused.success, "{kept}: {refused:?}");
    }
    cluster.restart(0, &[AS_3_7]);

    // A flag that the planned change itself sets blocks.
    let asked = [
        "gate",
        "plan",
        "restart",
        "m1",
        WANTS_COMPRESSION,
        "-w",
        "json",
    ];
    let blocked = cluster.portctl(asked);
    assert_eq!(blocked.code, Some(7), "{blocked:?}");
    let plan = json(&blocked.out);
    assert_eq!(plan["blocked"], true, "{plan}");
    assert_eq!(plan["flags_to_drop"], Value::Array(Vec::new()), "{plan}");
}
