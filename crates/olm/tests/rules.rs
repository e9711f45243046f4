//! Rules of OLM's gates that quantify over all states, and the policy of their life cycle.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use portunus_gates::{
    FeatureSet, Features, Level, LintError, NewFeature, Registry, RegistryBuilder, Spec, Stage,
    Versions, feature, lint, registry, to_json,
};
use portunus_olm::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn features(field: Option<bool>, entry: Option<bool>) -> Value {
    let mut features = json!({});
    let mut gates = vec![json!({"name": "other", "value": true})];
    if let Some(value) = field {
        features["disableCopiedCSVs"] = json!(value);
    }
    if let Some(value) = entry {
        gates.push(json!({"name": "disableCopiedCSVs", "value": value}));
    }
    features["gates"] = json!(gates);
    json!({"spec": {"features": features}})
}

fn entry(object: &Value) -> Option<bool> {
    let entry = gates(object)
        .into_iter()
        .find(|entry| entry.name == COPIED_CSVS_GATE);
    entry.map(|entry| entry.value)
}

const STATES: [Option<bool>; 3] = [None, Some(false), Some(true)];

/// Proves: S3-12, S3-A3
#[test]
fn create_is_decided_for_every_field_and_entry() {
    for field in STATES {
        for given in STATES {
            let mut object = features(field, given);
            let is_accepted = normalize(&mut object, None).is_ok();
            assert_eq!(
                is_accepted,
                given.is_none() || field == given,
                "{field:?} {given:?}"
            );
            if is_accepted {
                assert_eq!(entry(&object), field);
                assert_eq!(old_field(&object), field);
            }
        }
    }
}

/// Proves: S3-13, S3-A4
#[test]
fn update_is_decided_for_every_field_and_entry_before_and_after() {
    for before in STATES {
        for field in STATES {
            for given in STATES {
                let stored = features(before, before);
                let mut object = features(field, given);
                let is_accepted = normalize(&mut object, Some(&stored)).is_ok();
                let expected = match (field != before, given != before) {
                    (_, false) => true,
                    (false, true) => given.is_none(),
                    (true, true) => field == given,
                };
                assert_eq!(is_accepted, expected, "{before:?} {field:?} {given:?}");
                if is_accepted {
                    assert_eq!((old_field(&object), entry(&object)), (field, field));
                    assert_eq!(gates(&object)[0].name, "other");
                    let once = object.clone();
                    normalize(&mut object, Some(&stored)).unwrap();
                    assert_eq!(object, once, "normalising twice changes nothing");
                }
            }
        }
    }
}

/// Proves: S3-11
#[test]
fn read_of_an_object_with_only_the_field_shows_the_entry() {
    for field in STATES {
        let mut object = features(field, None);
        present(&mut object);
        assert_eq!(entry(&object), field);
        // A write that does not touch either is accepted.
        let stored = features(field, None);
        assert!(normalize(&mut object, Some(&stored)).is_ok());
    }
}

/// Proves: S3-16
#[test]
fn version_v1_is_always_convertible_and_has_a_schema() {
    let conversions = conversions();
    assert_eq!(
        conversions.versions().collect::<Vec<_>>(),
        ["v2alpha1", "v1"]
    );
    for version in conversions.versions() {
        assert!(schema_of(version).is_some_and(|schema| schema.is_ok()));
    }
}

fn registry_of(features: Vec<NewFeature>) -> Registry {
    let mut builder = RegistryBuilder::new(Level::Component);
    for feature in features {
        builder.add(feature).unwrap();
    }
    builder.build()
}

/// Proves: S3-3, S3-8
#[test]
fn gates_of_olm_are_legal_new_and_not_existing_features() {
    let registry = Registry::of::<OlmFeatures>().unwrap();
    lint([&registry], &to_json([&registry]), OLM_VERSION).unwrap();
    for feature in registry.features() {
        // Only the old field became a gate without having been alpha.
        let first = feature.specs[0];
        assert!(first.stage == Stage::Alpha || feature.name == COPIED_CSVS_GATE);
        assert!(!first.default, "a new gate is off");
    }
    let is_refused = |specs: Vec<Spec>| {
        let registry = registry_of(vec![NewFeature::new("gate", specs)]);
        lint([&registry], &to_json([&registry]), OLM_VERSION).is_err()
    };
    assert!(is_refused(vec![Spec::alpha("0.20").on()]), "alpha is off");
    assert!(
        is_refused(vec![Spec::beta("0.20"), Spec::ga("0.21")]),
        "GA is on"
    );
    assert!(!is_refused(vec![
        Spec::alpha("0.20"),
        Spec::beta("0.21").on(),
        Spec::ga("0.22").on().locked()
    ]));
}

/// Proves: S3-4
#[test]
fn gates_are_not_removed_before_the_time_of_the_policy() {
    let removed_at = |specs: Vec<Spec>, version: &str| {
        let previous = registry_of(vec![NewFeature::new("gate", specs)]);
        let present = registry_of(Vec::new());
        let version: portunus_gates::MajorMinor = version.parse().unwrap();
        lint([&present], &to_json([&previous]), version)
    };
    // Alpha to its end: at once.
    assert!(removed_at(vec![Spec::alpha("0.20")], "0.21").is_ok());
    // Beta to its end: only after it was deprecated and locked for more than one release.
    let beta = vec![Spec::beta("0.20").on()];
    assert!(matches!(
        removed_at(beta, "0.21").unwrap_err()[0],
        LintError::BetaRemoved { .. }
    ));
    let dropped = vec![
        Spec::beta("0.20"),
        Spec::deprecated("0.21"),
        Spec::deprecated("0.22").locked(),
    ];
    let early = removed_at(dropped.clone(), "0.23").unwrap_err();
    assert!(matches!(early[0], LintError::RemovedTooEarly { .. }));
    assert!(removed_at(dropped, "0.25").is_ok());
    // Beta to GA: the locked gate stays for more than two releases.
    let graduated = vec![Spec::beta("0.20").on(), Spec::ga("0.21").on().locked()];
    for version in ["0.22", "0.23"] {
        assert!(removed_at(graduated.clone(), version).is_err());
    }
    assert!(removed_at(graduated, "0.24").is_ok());
}

feature! {
    /// One of two gates that are always switched together.
    pub Left {
        level: Component, owner: "test", touches: Nothing, reversible: Free,
        specs: [Spec::alpha("0.22")],
    }
}
feature! {
    /// One of two gates that are always switched together.
    pub Right {
        level: Component, owner: "test", touches: Nothing, reversible: Free,
        specs: [Spec::alpha("0.22")],
    }
}
registry! {
    /// Two features that need no change of the API.
    pub Pair: Component = [Left, Right]
}

fn live<Set: FeatureSet>() -> LiveGates<Set> {
    LiveGates::new(Features::declared().unwrap(), olm_versions()).unwrap()
}

/// Proves: S3-6
#[test]
fn new_feature_needs_only_a_declaration_and_a_check() {
    let gates = live::<Pair>();
    assert!(!gates.enabled(Left));
    let object = json!({"spec": {"features": {"gates": [{"name": "Left", "value": true}]}}});
    let schema = schema_of(V2ALPHA1).unwrap().unwrap();
    assert_eq!(schema.validate(&object), []);
    gates.follow(Some(&object));
    assert!(gates.enabled(Left));
    assert!(!gates.enabled(Right));
}

/// Proves: S3-9
#[test]
fn readers_see_the_gates_of_one_object_while_it_changes() {
    let gates = Arc::new(live::<Pair>());
    let object = |value: bool| {
        json!({"spec": {"features": {"gates": [
            {"name": "Left", "value": value}, {"name": "Right", "value": value}]}}})
    };
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let gates = gates.clone();
            std::thread::spawn(move || {
                for _ in 0..2_000 {
                    let snapshot = gates.snapshot();
                    let gates = snapshot.gates();
                    assert_eq!(gates.enabled(Left), gates.enabled(Right));
                }
            })
        })
        .collect();
    for round in 0..500 {
        gates.follow(Some(&object(round % 2 == 0)));
    }
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(!gates.enabled(Left));
}

/// Proves: S3-A7
#[test]
fn refused_entries_leave_the_other_gates_in_force() {
    let gates = live::<Pair>();
    let object = json!({"spec": {"features": {"gates": [
        {"name": "Right", "value": true}, {"name": "none", "value": true}, {"name": 3}, 7]}}});
    let snapshot = gates.follow(Some(&object));
    assert!(gates.enabled(Right));
    assert_eq!(snapshot.problems().len(), 1);
    assert_eq!(snapshot.problems()[0].kind, ProblemKind::Unknown);
}

/// Proves: S3-A6
#[test]
fn condition_keeps_its_time_until_its_status_changes() {
    let gates = live::<Pair>();
    let mut object = json!({"metadata": {"generation": 4}});
    let mut state = |gates: &LiveGates<Pair>, now_unix_s: i64| {
        let condition = gates_condition(&gates.snapshot(), &object, now_unix_s);
        set_condition(&mut object, condition.clone());
        condition
    };
    let first = state(&gates, 0);
    assert_eq!(first["status"], "True");
    assert_eq!(first["observedGeneration"], 4);
    assert_eq!(
        state(&gates, 60)["lastTransitionTime"],
        "1970-01-01T00:00:00Z"
    );
    gates.follow(Some(
        &json!({"spec": {"features": {"gates": [{"name": "none", "value": true}]}}}),
    ));
    let unknown = state(&gates, 120);
    assert_eq!(unknown["status"], "False");
    assert_eq!(unknown["reason"], "UnknownGate");
    assert_eq!(unknown["lastTransitionTime"], "1970-01-01T00:02:00Z");
    assert_eq!(object["status"]["conditions"].as_array().unwrap().len(), 1);
    let mut whole = object.clone();
    whole["spec"] = json!({});
    assert_eq!(schema_of(V1).unwrap().unwrap().validate(&whole), []);
}

fn gate_list() -> impl Strategy<Value = Vec<(String, bool)>> {
    prop::collection::btree_map("[a-c]|disableCopiedCSVs", any::<bool>(), 0..4)
        .prop_map(|map| map.into_iter().collect())
}

fn hub_object(field: Option<bool>, list: &[(String, bool)]) -> Value {
    let gates: Vec<Value> = list
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let mut object = json!({"apiVersion": format!("{GROUP}/{V2ALPHA1}"), "kind": KIND,
        "metadata": {"name": SINGLETON}, "spec": {"features": {}}});
    if let Some(value) = field {
        object["spec"]["features"]["disableCopiedCSVs"] = json!(value);
    }
    if !gates.is_empty() {
        object["spec"]["features"]["gates"] = json!(gates);
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Proves: S3-A9
    #[test]
    fn normalized_objects_survive_v1(field in prop::option::of(any::<bool>()), list in gate_list()) {
        let mut object = hub_object(field, &list);
        if normalize(&mut object, None).is_ok() {
            let mut converted = object.clone();
            conversions().convert(&mut converted, V1).unwrap();
            prop_assert!(converted["spec"]["features"].get("gates").is_none());
            prop_assert_eq!(schema_of(V1).unwrap().unwrap().validate(&converted), vec![]);
            conversions().convert(&mut converted, V2ALPHA1).unwrap();
            prop_assert_eq!(converted, object);
        }
    }

    /// Proves: S3-A8
    #[test]
    fn gates_depend_only_on_the_last_object(lists in prop::collection::vec(prop::collection::vec(("Left|Right|x", any::<bool>()), 0..4), 1..5)) {
        let object = |list: &Vec<(String, bool)>| hub_object(None, list);
        let followed = live::<Pair>();
        for list in &lists {
            followed.follow(Some(&object(list)));
        }
        let fresh = live::<Pair>();
        fresh.follow(lists.last().map(object).as_ref());
        prop_assert_eq!(followed.enabled(Left), fresh.enabled(Left));
        prop_assert_eq!(followed.enabled(Right), fresh.enabled(Right));
        let (followed, fresh) = (followed.snapshot(), fresh.snapshot());
        prop_assert_eq!(followed.problems(), fresh.problems());
    }

    #[test]
    fn rules_never_panic_on_objects_of_any_shape(text in r#"(\{"(spec|features|gates|name|value|metadata)":(1|null|\[1,null\]|\{\}|"x")\}|[0-9]|null|\[\])"#) {
        let value: Value = serde_json::from_str(&text).unwrap();
        for object in [value.clone(), json!({"spec": value}), json!({"spec": {"features": value}}), json!({"spec": {"features": {"gates": value, "disableCopiedCSVs": true}}})] {
            let mut changed = object.clone();
            let _ = normalize(&mut changed, Some(&object));
            present(&mut changed);
            let registry = Registry::of::<Pair>().unwrap();
            let _ = review(&registry, olm_versions(), &object, Some(&changed));
            let gates = live::<Pair>();
            let snapshot = gates.follow(Some(&object));
            set_condition(&mut changed, gates_condition(&snapshot, &object, 0));
            let mut typed = object.clone();
            if typed.is_object() {
                typed["apiVersion"] = json!(format!("{GROUP}/{V1}"));
                let _ = conversions().convert(&mut typed, V2ALPHA1);
                let _ = conversions().convert(&mut typed, V1);
            }
        }
    }
}

#[test]
fn versions_of_olm_emulate_its_release() {
    assert_eq!(olm_versions(), Versions::emulating(OLM_VERSION));
}
