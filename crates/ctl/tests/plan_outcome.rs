//! Plans match their outcome: each step of an upgrade, a downgrade, a cancelled one, a change of
//! members and a change of the mechanism is planned with real members, then made, and compared.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use support::cluster::Cluster;

const OFF: &str = "--feature-gates=ClusterFeatureGate=false";
const ON: &str = "--feature-gates=ClusterFeatureGate=true";
const CHECKPOINT: &str = "--cluster-feature-gates=LeaseCheckpoint=true";
const BOTH: &str = "--cluster-feature-gates=LeaseCheckpoint=true,LogCompression=true";
const AS_3_6: &str = "--emulated-version=3.6";
const AS_3_7: &str = "--emulated-version=3.7";

/// The cluster version and which cluster features there are, with their values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    version: String,
    features: BTreeMap<String, bool>,
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The state that every member reports; `None` while members differ or do not answer.
fn state(cluster: &Cluster) -> Option<State> {
    let ran = cluster.portctl(["endpoint", "status", "-w", "json"]);
    let statuses = ran.success.then(|| json(&ran.out))?;
    let statuses = statuses.as_array()?.iter();
    let versions: Vec<&str> = statuses
        .map(|it| it["Status"]["storageVersion"].as_str().unwrap_or_default())
        .collect();
    let version = versions.first()?.strip_suffix(".0")?.to_owned();
    if versions.iter().any(|it| it != versions.first().unwrap()) {
        return None;
    }
    let mut features = BTreeMap::new();
    // There are no cluster features before 3.7.
    if version != "3.6" {
        let ran = cluster.portctl(["gate", "list", "-w", "json"]);
        let list = ran.success.then_some(ran.out)?;
        collect_cluster_features(&json(&list), &mut features);
    }
    Some(State { version, features })
}

/// Every object of the document that is a cluster feature that exists.
fn collect_cluster_features(value: &Value, features: &mut BTreeMap<String, bool>) {
    if value["level"] == "cluster" && value["stage"].as_str().is_some_and(|it| it != "-") {
        let name = value["name"].as_str().unwrap_or_default().to_owned();
        features.insert(name, value["enabled"] == true);
    }
    let inner: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    };
    for value in inner {
        collect_cluster_features(value, features);
    }
}

/// The state that a plan leads to from `before`.
#[track_caller]
fn planned(cluster: &Cluster, before: &State, plan: &[&str]) -> State {
    let arguments = ["gate", "plan", "-w", "json"].iter().chain(plan);
    let ran = cluster.portctl(arguments);
    let plan = json(&ran.out);
    assert_eq!(plan["blocked"], false, "{ran:?}");
    let mut after = before.clone();
    after.version = plan["cluster_version"].as_str().unwrap().to_owned();
    for row in plan["rows"].as_array().unwrap() {
        if row["level"] != "cluster" {
            continue;
        }
        let name = row["feature"].as_str().unwrap().to_owned();
        let held = before.features.get(&name).copied();
        assert_eq!(row["before"].as_bool(), held, "{name}: {ran:?}");
        match row["after"].as_bool() {
            Some(value) => after.features.insert(name, value),
            None => after.features.remove(&name),
        };
    }
    after
}

/// Waits until nothing is under way any more: a restart that changes no flag changes nothing.
#[track_caller]
fn settled(cluster: &Cluster) -> State {
    let quiet = ["gate", "plan", "restart", "m1", "-w", "json"];
    cluster.until(&quiet, |ran| {
        let plan = ran.success.then(|| json(&ran.out));
        let is_quiet = plan.is_some_and(|plan| {
            plan["rows"].as_array().is_some_and(Vec::is_empty)
                && plan["cluster_version"] == plan["cluster_version_before"]
        });
        is_quiet && state(cluster).is_some()
    });
    state(cluster).unwrap()
}

/// Plans a step, makes it and compares.
#[track_caller]
fn step(cluster: &mut Cluster, plan: &[&str], make: impl FnOnce(&mut Cluster)) -> State {
    let before = settled(cluster);
    let expected = planned(cluster, &before, plan);
    make(cluster);
    cluster.until(&["gate", "list"], |_| {
        state(cluster) == Some(expected.clone())
    });
    let after = settled(cluster);
    assert_eq!(after, expected, "{plan:?} from {before:?}");
    after
}

#[track_caller]
fn restart(cluster: &mut Cluster, member: usize, flags: &[&str]) -> State {
    let name = format!("m{}", member + 1);
    let mut plan = vec!["restart", &name];
    plan.extend(flags);
    step(cluster, &plan, |cluster| cluster.restart(member, flags))
}

/// Proves: S0-36, S0-37, S0-39, S0-A25
#[test]
fn outcome_of_every_step_equals_its_plan() {
    let mut cluster = Cluster::start(&[&[AS_3_6], &[AS_3_6], &[AS_3_6]]);
    let version = |cluster: &Cluster, wanted: &str| {
        cluster.until(&["endpoint", "health"], |_| {
            state(cluster).is_some_and(|it| it.version == wanted)
        });
    };
    version(&cluster, "3.6");

    // Two minors at once are blocked by the plan and refused by the member, with one flag to use.
    let far = cluster.portctl(["gate", "plan", "restart", "m1", "--emulated-version=3.8"]);
    assert_eq!(far.code, Some(7), "{far:?}");
    assert!(far.out.contains("--emulated-version=3.7"), "{far:?}");
    cluster.members[0].kill();
    let refused = cluster.refusal(0, &[]);
    assert!(!refused.success, "{refused:?}");
    assert!(
        refused.err.contains("--emulated-version=3.7"),
        "{refused:?}"
    );
    cluster.restart(0, &[AS_3_6]);

    // Up, with flags that take effect with the last member.
    for member in 0..3 {
        let state = restart(&mut cluster, member, &[AS_3_7, ON, CHECKPOINT]);
        assert_eq!(state.version, if member < 2 { "3.6" } else { "3.7" });
    }
    for member in 0..3 {
        let state = restart(&mut cluster, member, &["--emulated-version=3.8", ON, BOTH]);
        let is_last = member == 2;
        assert_eq!(
            state.features.get("LogCompression").copied(),
            is_last.then_some(true)
        );
    }

    // Enabled and cancelled.
    let enable = |cluster: &mut Cluster| {
        let ran = cluster.portctl(["downgrade", "enable", "3.7"]);
        assert!(ran.success, "{ran:?}");
        settled(cluster)
    };
    let lowered = enable(&mut cluster);
    assert_eq!(lowered.version, "3.7");
    assert_eq!(lowered.features.get("LogCompression"), None);
    let back = step(&mut cluster, &["cancel"], |cluster| {
        assert!(cluster.portctl(["downgrade", "cancel"]).success);
    });
    assert_eq!(back.features.get("LogCompression"), Some(&true));

    // Down.
    enable(&mut cluster);
    for member in 0..3 {
        restart(&mut cluster, member, &[AS_3_7, ON, CHECKPOINT]);
    }
    cluster.until(&["downgrade", "status"], |ran| {
        ran.out.starts_with("none: ")
    });

    // The mechanism off at one member, and on again.
    let state = restart(&mut cluster, 1, &[AS_3_7, OFF]);
    assert_eq!(state.features.get("LeaseCheckpoint"), Some(&false));
    let state = restart(&mut cluster, 1, &[AS_3_7, ON, CHECKPOINT]);
    assert_eq!(state.features.get("LeaseCheckpoint"), Some(&true));

    // A learner without cluster flags, promoted, and removed.
    step(
        &mut cluster,
        &["add", "m4", "--learner", AS_3_7, ON],
        |cluster| {
            cluster.add_learner("m4", &[AS_3_7, ON]);
        },
    );
    let id = || -> String {
        let list = cluster.portctl(["member", "list"]).ok();
        let line = list.lines().find(|line| line.contains(", m4, "));
        line.unwrap().split(',').next().unwrap().to_owned()
    };
    let id = id();
    let state = step(&mut cluster, &["promote", "m4"], |cluster| {
        cluster.until(&["member", "promote", &id], |ran| ran.success);
    });
    assert_eq!(state.features.get("LeaseCheckpoint"), Some(&false));
    let state = step(&mut cluster, &["remove", "m4"], |cluster| {
        cluster.until(&["member", "remove", &id], |ran| ran.success);
        cluster.members[3].kill();
    });
    assert_eq!(state.features.get("LeaseCheckpoint"), Some(&true));
}
