//! Registration of features, dependencies and overridden defaults.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::*;
use portunus_gates::*;

fn refused(features: impl IntoIterator<Item = NewFeature>) -> &'static str {
    registry(Level::Server, features).map_or_else(|error| error.id(), |_| "ok")
}

/// Proves: G9, G10
#[test]
fn toggles_are_known_to_every_registry() {
    let gates = gates(&server([]), "3.7", "AllAlpha=true,AllBeta=false").unwrap();
    assert_eq!(gates.to_string(), "AllAlpha=true,AllBeta=false");
    assert_eq!(gates.versions(), at("3.7", "3.6"));
    let both = GateSet::builder(server([]), at("3.7", "3.5"))
        .build()
        .unwrap();
    assert_eq!(both.versions().min_compat, v("3.5"));
    for name in ["AllAlpha", "AllBeta", "", "A=B", "A B", "A,B", "A:B"] {
        assert_eq!(
            refused([NewFeature::new(name, [Spec::alpha("3.6")])]),
            "E-BAD-NAME",
            "{name}"
        );
    }
}

/// Proves: S1-A3
#[test]
fn beta_feature_may_be_on_or_off_by_default() {
    let features = [
        NewFeature::new("Off", [Spec::beta("3.6")]),
        NewFeature::new("On", [Spec::beta("3.6").on()]),
    ];
    let gates = gates(&server(features), "3.7", "").unwrap();
    assert!(!gates.try_enabled("Off").unwrap());
    assert!(gates.try_enabled("On").unwrap());
}

/// Proves: G15, G16
#[test]
fn registration_is_all_or_nothing_and_refused_once_the_registry_is_closed() {
    let mut builder = RegistryBuilder::new(Level::Server);
    let good = || NewFeature::new("Good", [Spec::alpha("3.6")]);
    let bad = NewFeature::new("Bad", [Spec::alpha("3.6"), Spec::alpha("3.7")]);
    assert_eq!(
        builder.add_all([good(), bad]).unwrap_err().id(),
        "E-NOCHANGE"
    );
    assert!(builder.clone().build().get("Good").is_none());
    builder.add(good()).unwrap();
    builder.close();
    assert_eq!(builder.add(good()).unwrap_err().id(), "E-CLOSED");
    assert_eq!(
        builder.add_dependencies(&BTreeMap::new()).unwrap_err().id(),
        "E-CLOSED"
    );
    let late = builder.override_default("Good", true, at("3.7", "3.6"));
    assert_eq!(late.unwrap_err().id(), "E-CLOSED");
}

/// Proves: G18
#[test]
fn registering_again_is_accepted_with_the_same_history_and_refused_with_another() {
    let mut builder = RegistryBuilder::new(Level::Server);
    let original = || NewFeature::new("A", [Spec::beta("3.6")]);
    builder.add(original()).unwrap();
    builder.add(original()).unwrap();
    let other = NewFeature::new("A", [Spec::beta("3.6").on()]);
    assert_eq!(builder.add(other).unwrap_err().id(), "E-CONFLICT");
    builder.override_default_at("A", true, v("3.7")).unwrap();
    assert_eq!(builder.add(original()).unwrap_err().id(), "E-CONFLICT");
}

/// Proves: G20
#[test]
fn dependencies_are_merged_sorted_and_without_repeats() {
    let mut builder = RegistryBuilder::new(Level::Server);
    let feature = |name: &str| NewFeature::new(name, [Spec::alpha("3.6")]);
    builder.add_all(["A", "B", "C", "D"].map(feature)).unwrap();
    let given = BTreeMap::from([("D".to_owned(), ["C", "A", "C"].map(str::to_owned).to_vec())]);
    let before = given.clone();
    builder.add_dependencies(&given).unwrap();
    assert_eq!(given, before);
    let more = BTreeMap::from([("D".to_owned(), ["B", "A"].map(str::to_owned).to_vec())]);
    builder.add_dependencies(&more).unwrap();
    let registry = builder.build();
    assert_eq!(registry.get("D").unwrap().depends_on, ["A", "B", "C"]);
}

/// Proves: G21, G22, G23
#[test]
fn illegal_dependencies_are_refused_with_an_error_of_their_own() {
    let new = |name: &str, spec: Spec| NewFeature::new(name, [spec]);
    let pair = |child: Spec, parent: Spec| {
        refused([
            new("Child", child).depending_on(["Parent"]),
            new("Parent", parent),
        ])
    };
    assert_eq!(
        refused([new("A", Spec::alpha("3.6")).depending_on(["Missing"])]),
        "E-DEP-UNKNOWN-TO"
    );
    let mut builder = RegistryBuilder::new(Level::Server);
    let from_missing = BTreeMap::from([("Missing".to_owned(), vec![])]);
    assert_eq!(
        builder.add_dependencies(&from_missing).unwrap_err().id(),
        "E-DEP-UNKNOWN-FROM"
    );
    assert_eq!(pair(Spec::beta("3.6"), Spec::alpha("3.6")), "E-DEP-STAGE");
    assert_eq!(pair(Spec::ga("3.6"), Spec::beta("3.6")), "E-DEP-STAGE");
    assert_eq!(pair(Spec::beta("3.6"), Spec::beta("3.7")), "E-DEP-STAGE");
    assert_eq!(
        pair(Spec::alpha("3.6"), Spec::deprecated("3.0")),
        "E-DEP-STAGE"
    );
    assert_eq!(
        pair(Spec::beta("3.6").on(), Spec::beta("3.6")),
        "E-DEP-DEFAULT"
    );
    assert_eq!(
        pair(Spec::ga("3.6").on().locked(), Spec::ga("3.6").on()),
        "E-DEP-LOCK"
    );
    // An alpha may depend on a feature that exists only later.
    assert_eq!(pair(Spec::alpha("3.6"), Spec::alpha("3.8")), "ok");
    assert_eq!(pair(Spec::deprecated("3.0"), Spec::alpha("3.0")), "ok");
    // Every version of the history is checked, not only the newest.
    assert_eq!(
        refused([
            NewFeature::new("Child", [Spec::beta("3.6"), Spec::ga("3.8")]).depending_on(["Parent"]),
            NewFeature::new("Parent", [Spec::alpha("3.6"), Spec::ga("3.8")]),
        ]),
        "E-DEP-STAGE"
    );
    let alpha = |name: &str, needs: &str| new(name, Spec::alpha("3.6")).depending_on([needs]);
    assert_eq!(refused([alpha("A", "A")]), "E-DEP-CYCLE");
    assert_eq!(
        refused([alpha("A", "B"), alpha("B", "C"), alpha("C", "A")]),
        "E-DEP-CYCLE"
    );
}

/// Proves: G49
#[test]
fn overridden_default_changes_one_entry_and_explicit_values_still_win() {
    let mut builder = RegistryBuilder::new(Level::Server);
    builder
        .add_all([
            NewFeature::new("A", [Spec::alpha("3.6"), Spec::beta("3.7")]),
            NewFeature::new("Locked", [Spec::ga("3.6").on().locked()]),
            NewFeature::new("Ga", [Spec::ga("3.6").on()]),
            NewFeature::new("Late", [Spec::alpha("3.9")]),
        ])
        .unwrap();
    assert_eq!(builder.override_default_at("A", true, v("3.7")), Ok(None));
    assert_eq!(
        builder.override_default_at("Ga", false, v("3.7")),
        Ok(Some(Stage::Ga))
    );
    let mut id = |name: &str| {
        builder
            .override_default_at(name, false, v("3.7"))
            .unwrap_err()
            .id()
    };
    assert_eq!(id("Locked"), "E-LOCKED");
    assert_eq!(id("Late"), "E-PREALPHA");
    assert_eq!(id("Missing"), "E-UNKNOWN");
    let registry = builder.build().into();
    assert!(
        gates(&registry, "3.7", "")
            .unwrap()
            .try_enabled("A")
            .unwrap()
    );
    assert!(
        !gates(&registry, "3.6", "")
            .unwrap()
            .try_enabled("A")
            .unwrap()
    );
    assert!(
        !gates(&registry, "3.7", "A=false")
            .unwrap()
            .try_enabled("A")
            .unwrap()
    );
}

/// Proves: S0-15, C35
#[test]
fn unknown_name_is_refused_with_the_nearest_name_and_the_right_flag() {
    let other = cluster([NewFeature::new("LeaseCheckpoint", [Spec::alpha("3.7")])]);
    let mut builder = RegistryBuilder::new(Level::Server);
    builder
        .add_all([
            NewFeature::new("FastKeepAlive", [Spec::beta("3.7")]),
            NewFeature::new("OldThing", [Spec::beta("3.5"), Spec::removed("3.7")]),
        ])
        .unwrap();
    builder.add_other_level(other.registry());
    let registry = builder.build();
    let hint = |name: &str| registry.unknown(name).to_string();
    assert_eq!(
        hint("FastKeepalive"),
        "unknown feature \"FastKeepalive\": did you mean FastKeepAlive?"
    );
    assert_eq!(
        hint("OldThings"),
        "unknown feature \"OldThings\": did you mean OldThing (removed in 3.7)?"
    );
    assert_eq!(
        hint("LeaseCheckpoint"),
        "unknown feature \"LeaseCheckpoint\": it is a cluster feature: set it with --cluster-feature-gates"
    );
    assert!(hint("Zzz").contains("portctl gate list"));
}
