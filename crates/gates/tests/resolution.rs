//! Resolution of server gates, help, metrics and emulation.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::*;
use portunus_gates::*;

fn sample() -> Arc<Registry> {
    server([
        NewFeature::new("Alpha", [Spec::alpha("3.6"), Spec::beta("3.7").on()]),
        NewFeature::new("Beta", [Spec::beta("3.6")]),
        NewFeature::new("LockedAlpha", [Spec::alpha("3.6").locked()]),
        NewFeature::new("LockedBeta", [Spec::beta("3.6").on().locked()]),
        NewFeature::new("Ga", [Spec::ga("3.6").on()]),
        NewFeature::new("LockedGa", [Spec::ga("3.6").on().locked()]),
        NewFeature::new("Old", [Spec::deprecated("3.0")]),
        NewFeature::new("Gone", [Spec::beta("3.4"), Spec::removed("3.5")]),
        NewFeature::new("Later", [Spec::alpha("3.9")]),
        NewFeature::new("Child", [Spec::alpha("3.6")]).depending_on(["Beta", "Ga"]),
    ])
}

fn on(gates: &GateSet) -> Vec<String> {
    gates
        .statuses()
        .into_iter()
        .filter(|status| status.enabled)
        .map(|status| status.name)
        .collect()
}

fn source(gates: &GateSet, name: &str) -> Source {
    gates.explain(name).unwrap().status.source
}

/// Proves: G8, G27, G28, G29, G30
#[test]
fn toggles_set_unlocked_features_that_are_not_set_by_name() {
    let registry = sample();
    let all = gates(&registry, "3.6", "AllAlpha=true,AllBeta=true,Alpha=false").unwrap();
    assert_eq!(on(&all), ["Beta", "Child", "Ga", "LockedBeta", "LockedGa"]);
    assert_eq!(source(&all, "Alpha"), Source::Explicit(Origin::Flag));
    assert_eq!(source(&all, "Beta"), Source::AllBeta(Origin::Flag));
    assert_eq!(source(&all, "LockedAlpha"), Source::Lock);
    assert_eq!(source(&all, "Later"), Source::Absent);
    let other_order = gates(&registry, "3.6", "Alpha=false,AllBeta=true,AllAlpha=true").unwrap();
    assert_eq!(on(&other_order), on(&all));
    // At 3.7 the feature Alpha is beta, so AllBeta sets it.
    let later = gates(&registry, "3.7", "AllBeta=false").unwrap();
    assert!(!later.try_enabled("Alpha").unwrap());
}

/// Proves: G31, G39, G35
#[test]
fn resolution_starts_from_raw_assignments_not_from_an_earlier_result() {
    let registry = sample();
    let first = gates(&registry, "3.6", "AllAlpha=true,Beta=true").unwrap();
    let second = first.with(&flags("AllAlpha=false")).unwrap();
    assert!(!second.try_enabled("Alpha").unwrap());
    assert!(!second.try_enabled("Child").unwrap());
    // A refused value leaves nothing behind.
    let refused = second.with(&flags("Missing=true,Alpha=true")).unwrap_err();
    assert_eq!(ids(&refused), ["E-UNKNOWN"]);
    assert!(!second.explicitly_set("Alpha"));
    assert!(
        second
            .with(&flags("Alpha=true"))
            .unwrap()
            .try_enabled("Alpha")
            .unwrap()
    );
}

/// Proves: G36, G37, G40, S2-A14
#[test]
fn all_refused_values_are_reported_at_once() {
    let registry = sample();
    let text = "LockedGa=false,Missing=true,Later=false,Gone=true,Ga=true,LockedBeta=true";
    let errors = gates(&registry, "3.7", text).unwrap_err();
    assert_eq!(
        ids(&errors),
        ["E-REMOVED", "E-PREALPHA", "E-LOCKED", "E-UNKNOWN"]
    );
    let shown = errors.to_string();
    assert!(
        shown.contains("version 3.7 (data readable by 3.6)"),
        "{shown}"
    );
    // A locked gate may be set to the value it is locked to; an unlocked GA one to either.
    let fine = gates(&registry, "3.7", "LockedGa=true,Ga=false").unwrap();
    assert!(!fine.try_enabled("Ga").unwrap());
}

/// Proves: G38, G59
#[test]
fn setting_a_ga_or_deprecated_gate_warns_once() {
    let registry = sample();
    let gates = gates(&registry, "3.7", "Ga=true,Old=true,Beta=true").unwrap();
    let warned: Vec<String> = gates.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(warned[0].starts_with("Ga=true sets a GA gate"));
    assert!(warned[1].starts_with("Old=true sets a DEPRECATED gate"));
    assert_eq!(
        gates.with(&flags("Alpha=true")).unwrap().warnings().len(),
        2
    );
}

/// Proves: G24, G25, G26, G64
#[test]
fn feature_that_is_on_is_refused_while_a_dependency_is_off() {
    let registry = sample();
    let errors = gates(&registry, "3.7", "Child=true,Ga=false").unwrap_err();
    assert_eq!(ids(&errors), ["E-DEP-DISABLED"]);
    assert!(errors.to_string().contains("Beta, Ga"), "{errors}");
    assert!(gates(&registry, "3.7", "Child=true,Beta=true").is_ok());
    // A dependency is not turned on implicitly.
    let errors = gates(&registry, "3.6", "AllAlpha=true").unwrap_err();
    assert_eq!(ids(&errors), ["E-DEP-DISABLED"]);
    assert!(gates(&registry, "3.6", "AllAlpha=true,AllBeta=true").is_ok());
    // A disabled dependency is not reported beside another error.
    let errors = gates(&registry, "3.7", "Child=true,Missing=true").unwrap_err();
    assert_eq!(ids(&errors), ["E-UNKNOWN"]);
}

/// Dependencies are checked for defaults as well, including overridden ones.
#[test]
fn overridden_default_is_refused_while_a_dependency_is_off() {
    let mut builder = RegistryBuilder::new(Level::Server);
    builder
        .add_all([
            NewFeature::new("Parent", [Spec::beta("3.6")]),
            NewFeature::new("Child", [Spec::alpha("3.6")]).depending_on(["Parent"]),
        ])
        .unwrap();
    builder
        .override_default_at("Child", true, v("3.7"))
        .unwrap();
    let errors = gates(&builder.build().into(), "3.7", "").unwrap_err();
    assert_eq!(ids(&errors), ["E-DEP-DISABLED"]);
}

/// Proves: G34
#[test]
fn unparsable_flag_text_changes_nothing() {
    let builder = GateSet::builder(sample(), Versions::emulating(v("3.7")));
    let kept = builder.clone();
    assert!(builder.flag("Beta=true,Alpha").is_err());
    assert_eq!(kept.build().unwrap().to_string(), "");
}

/// Proves: G41, G43, G44
#[test]
fn gates_are_queried_and_listed_by_name() {
    let registry = sample();
    let gates = gates(&registry, "3.6", "AllAlpha=true,Beta=true").unwrap();
    assert_eq!(gates.try_enabled("Beta"), Ok(true));
    assert_eq!(gates.try_enabled("Bета").unwrap_err().id(), "E-UNKNOWN");
    assert!(gates.explicitly_set("Beta"));
    assert!(!gates.explicitly_set("Alpha"));
    let names: Vec<String> = gates
        .statuses()
        .into_iter()
        .map(|status| status.name)
        .collect();
    assert_eq!(
        names,
        [
            "Alpha",
            "Beta",
            "Child",
            "Ga",
            "LockedAlpha",
            "LockedBeta",
            "LockedGa",
            "Old"
        ]
    );
    assert_eq!(
        gates.to_string(),
        "AllAlpha=true,Alpha=true,Beta=true,Child=true"
    );
    assert_eq!(registry.get("Alpha").unwrap().specs.len(), 2);
}

/// Proves: G42, G45, G46, G47, G48
#[test]
fn resolving_at_another_version_reports_every_changed_value() {
    let registry = sample();
    let old = gates(&registry, "3.6", "Beta=true").unwrap();
    let (new, changes) = old.at(Versions::emulating(v("3.7"))).unwrap();
    assert_eq!(
        changes,
        [ValueChange {
            name: "Alpha".to_owned(),
            before: false,
            after: true
        }]
    );
    assert_eq!(new.versions(), at("3.7", "3.6"));
    assert!(new.explicitly_set("Beta"));
    assert!(old.at(old.versions()).unwrap().1.is_empty());
    // Where a flag is refused, nothing changes.
    let errors = old.at(Versions::emulating(v("3.5"))).unwrap_err();
    assert_eq!(ids(&errors), ["E-PREALPHA"]);
    assert_eq!(old.versions(), at("3.6", "3.5"));
}

/// Proves: G50, G51, G52, G53
#[test]
fn reset_of_a_toggle_resets_the_values_it_set() {
    let registry = sample();
    let gates = gates(&registry, "3.6", "AllAlpha=true,Beta=true").unwrap();
    let copy = gates.clone();
    assert_eq!(copy.to_string(), gates.to_string());
    // Without the toggle, the values that it set are back at their defaults.
    let without = gates.without("AllAlpha").unwrap();
    assert_eq!(without.to_string(), "Beta=true");
    assert!(!without.try_enabled("Alpha").unwrap());
    // A reset is validated.
    let child = common::gates(&registry, "3.6", "Child=true,Beta=true").unwrap();
    assert_eq!(ids(&child.without("Beta").unwrap_err()), ["E-DEP-DISABLED"]);
    // A full reset keeps versions, features and their dependencies.
    let reset = gates.reset().unwrap();
    assert_eq!(reset.to_string(), "");
    assert_eq!(reset.versions(), gates.versions());
    assert!(reset.with(&flags("Child=true")).is_err());
}

/// Proves: G54, G55, G56
#[test]
fn help_lists_unlocked_alpha_and_beta_features() {
    let mut features: Vec<NewFeature> = vec![
        NewFeature::new(
            "Compat",
            [Spec::beta("3.7"), Spec::beta("3.7").on().min_compat("3.7")],
        ),
        NewFeature::new(
            "Graduating",
            [
                Spec::beta("3.6"),
                Spec::beta("3.6").on().min_compat("3.6"),
                Spec::ga("3.7").on().locked(),
            ],
        ),
    ];
    let more = [
        ("Alpha", Spec::alpha("3.6")),
        ("Beta", Spec::beta("3.6").on()),
    ];
    features.extend(more.map(|(name, spec)| NewFeature::new(name, [spec])));
    let hidden = [
        ("Ga", Spec::ga("3.6")),
        ("Old", Spec::deprecated("3.0")),
        ("Later", Spec::alpha("3.9")),
    ];
    features.extend(hidden.map(|(name, spec)| NewFeature::new(name, [spec])));
    let registry = server(features);
    assert_eq!(
        known_features(&registry, at("3.7", "3.6")),
        [
            "AllAlpha=true|false (ALPHA - default=false)",
            "AllBeta=true|false (BETA - default=false)",
            "Alpha=true|false (ALPHA - default=false)",
            "Beta=true|false (BETA - default=true)",
            "Compat=true|false (BETA - default=false), or Compat=true|false (BETA - default=true) when the minimum compatibility version is 3.7 or higher",
        ]
    );
    // Below 3.6 the GA entry does not apply and the feature can be switched.
    let lines = known_features(&registry, at("3.7", "3.5"));
    assert!(
        lines.contains(&"Graduating=true|false (BETA - default=false)".to_owned()),
        "{lines:?}"
    );
}

/// Proves: G57, G63, C34
#[test]
fn metrics_report_off_as_zero_and_ga_as_empty_stage() {
    let registry = sample();
    let gates = gates(&registry, "3.7", "").unwrap();
    let samples = gates.samples(SERVER_FEATURE_ENABLED);
    let find = |name: &str| {
        let named = |sample: &&Sample| sample.labels[0] == ("name", name.to_owned());
        samples.iter().find(named).cloned()
    };
    let beta = find("Beta").unwrap();
    assert_eq!(
        (beta.metric, beta.value),
        ("etcd_server_feature_enabled", 0)
    );
    assert_eq!(beta.labels[1], ("stage", "BETA".to_owned()));
    let ga = find("Ga").unwrap();
    assert_eq!((ga.value, ga.labels[1].1.as_str()), (1, ""));
    assert!(find("Later").is_none() && find("Gone").is_none());
    assert_eq!(
        gates.samples(KUBERNETES_FEATURE_ENABLED)[0].metric,
        "kubernetes_feature_enabled"
    );
}

/// Proves: G60
#[test]
fn refused_environment_variables_are_ignored_with_a_warning() {
    let builder = GateSet::builder(sample(), Versions::emulating(v("3.7")));
    let variables = [
        ("X_Beta", "true"),
        ("X_LockedGa", "false"),
        ("X_Missing", "true"),
        ("X_Ga", "perhaps"),
    ];
    let gates = builder.environment("X_", variables).build().unwrap();
    assert_eq!(gates.to_string(), "Beta=true");
    assert_eq!(gates.warnings().len(), 3);
    // A value set in code overrides the environment.
    let code = Assignments::from_map(Origin::Code, [("Beta", false)]);
    assert!(!gates.with(&code).unwrap().try_enabled("Beta").unwrap());
}

/// Proves: G61
#[test]
fn gates_for_tests_turn_off_dependents_and_leave_the_original_unchanged() {
    let registry = server([
        NewFeature::new("Parent", [Spec::beta("3.6").on()]),
        NewFeature::new("Child", [Spec::beta("3.6").on()]).depending_on(["Parent"]),
        NewFeature::new("Grandchild", [Spec::alpha("3.6").on()]).depending_on(["Child"]),
        NewFeature::new("Fixed", [Spec::beta("3.6"), Spec::ga("3.7").on().locked()]),
    ]);
    let gates = gates(&registry, "3.7", "").unwrap();
    let changed = gates.with_for_test("Parent=false").unwrap();
    assert_eq!(on(&changed), ["Fixed"]);
    assert_eq!(on(&gates), ["Child", "Fixed", "Grandchild", "Parent"]);
    let all_beta = gates.with_for_test("AllBeta=false").unwrap();
    assert!(all_beta.explicitly_set("Child"));
    let error = gates.with_for_test("Fixed=false").unwrap_err();
    assert!(error.to_string().contains("when emulating 3.6"), "{error}");
}

/// Proves: G62, S1-2, S1-3, X1
#[test]
fn two_sets_in_one_process_are_independent() {
    let registry = sample();
    let one = gates(&registry, "3.7", "Beta=true").unwrap();
    let two = gates(&registry, "3.6", "Beta=false").unwrap();
    assert!(one.try_enabled("Beta").unwrap());
    assert!(!two.try_enabled("Beta").unwrap());
    assert_eq!(one.explain("Alpha").unwrap().status.stage, Stage::Beta);
    assert_eq!(two.explain("Alpha").unwrap().status.stage, Stage::Alpha);
}

/// Proves: X12, S1-4
#[test]
fn explanation_serialises_with_all_keys() {
    let gates = gates(&sample(), "3.7", "Beta=true").unwrap();
    let json = serde_json::to_value(gates.explain("Beta").unwrap()).unwrap();
    for key in [
        "name",
        "level",
        "enabled",
        "stage",
        "default",
        "locked",
        "explicit",
        "source",
        "reason",
        "version_used",
        "spec",
        "versions",
        "said",
        "needs",
        "needed_by",
        "to_change",
    ] {
        assert!(json.get(key).is_some(), "{key} is missing in {json}");
    }
    assert_eq!(json["level"], "server");
    assert_eq!(
        json["source"],
        serde_json::json!({"kind": "explicit", "origin": "flag"})
    );
    assert_eq!(json["needed_by"][0]["name"], "Child");
}

/// The values when emulating N-1 and N, for each step of a feature's history.
///
/// Proves: S2-8, S2-12, S2-29, S2-30, S2-31, S2-32, S2-43
#[test]
fn emulating_the_previous_version_restores_its_features() {
    let registry = server([
        NewFeature::new("New", [Spec::alpha("3.8")]),
        NewFeature::new("ToBeta", [Spec::alpha("3.7"), Spec::beta("3.8").on()]),
        NewFeature::new(
            "ToGa",
            [Spec::beta("3.7").on(), Spec::ga("3.8").on().locked()],
        ),
        NewFeature::new("Dropped", [Spec::beta("3.7").on(), Spec::removed("3.8")]),
    ]);
    // (feature, emulation, unset, set to true, set to false)
    let off_on_off = ("off", "on", "off");
    let on_on_off = ("on", "on", "off");
    for (name, emulation, expected) in [
        ("New", "3.7", ("off", "E-PREALPHA", "E-PREALPHA")),
        ("New", "3.8", off_on_off),
        ("ToBeta", "3.7", off_on_off),
        ("ToBeta", "3.8", on_on_off),
        ("ToGa", "3.7", on_on_off),
        ("ToGa", "3.8", ("on", "on", "E-LOCKED")),
        ("Dropped", "3.7", on_on_off),
        ("Dropped", "3.8", ("off", "E-REMOVED", "E-REMOVED")),
    ] {
        let value = |text: &str| match gates(&registry, emulation, text) {
            Ok(gates) if gates.try_enabled(name).unwrap() => "on",
            Ok(_) => "off",
            Err(errors) => errors.0[0].id(),
        };
        let found = (
            value(""),
            value(&format!("{name}=true")),
            value(&format!("{name}=false")),
        );
        assert_eq!(found, expected, "{name} at {emulation}");
    }
}

/// Proves: S2-10, S2-51
#[test]
fn feature_with_min_compat_is_off_until_the_minimum_compatibility_version_rises() {
    let registry = server([NewFeature::new(
        "NewFormat",
        [Spec::beta("3.8"), Spec::beta("3.8").on().min_compat("3.8")],
    )]);
    let enabled = |versions| {
        let gates = GateSet::builder(registry.clone(), versions)
            .build()
            .unwrap();
        gates.try_enabled("NewFormat").unwrap()
    };
    // The default pair keeps the data readable by 3.7.
    assert!(!enabled(Versions::emulating(v("3.8"))));
    // Without compatibility with 3.7, as in a new cluster, the feature is on at once.
    assert!(enabled(at("3.8", "3.8")));
    let advice = gates(&registry, "3.8", "")
        .unwrap()
        .explain("NewFormat")
        .unwrap()
        .to_change;
    assert!(
        advice
            .iter()
            .any(|way| way.contains("minimum compatibility version to 3.8")),
        "{advice:?}"
    );
}

/// Proves: S2-25, S2-49, S2-50, S2-52
#[test]
fn one_binary_emulates_each_version_it_replaced_and_back() {
    let registry = server([
        NewFeature::new("Renamed", [Spec::beta("1.28").on(), Spec::removed("1.31")]),
        NewFeature::new("Fresh", [Spec::alpha("1.29"), Spec::beta("1.30").on()]),
    ]);
    let values = |emulation: &str| {
        let gates = gates(&registry, emulation, "").unwrap();
        ["Renamed", "Fresh"].map(|name| gates.try_enabled(name).unwrap())
    };
    // One binary of 1.31 emulates the versions before it, then its own.
    assert_eq!(values("1.28"), [true, false]);
    assert_eq!(values("1.29"), [true, false]);
    assert_eq!(values("1.30"), [true, true]);
    assert_eq!(values("1.31"), [false, true]);
    // Emulating an older version restores the removed feature.
    assert_eq!(values("1.30"), [true, true]);
}

/// A mitigation that belongs to the binary is on at every emulation version.
///
/// Proves: S2-A15
#[test]
fn feature_registered_at_zero_is_on_at_every_emulation_version() {
    let registry = server([NewFeature::new(
        "Mitigation",
        [Spec::unversioned(Stage::Ga, true)],
    )]);
    for emulation in ["1.0", "1.31", "3.8"] {
        assert!(
            gates(&registry, emulation, "")
                .unwrap()
                .try_enabled("Mitigation")
                .unwrap()
        );
    }
}
