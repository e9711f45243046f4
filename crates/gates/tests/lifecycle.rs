//! The lint and the documents made from a registry.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use portunus_gates::*;

const NOTHING: &str = r#"{"features":[]}"#;

fn lint_ids(now: &Registry, previous: &str, current: &str) -> Vec<&'static str> {
    lint([now], previous, Version::parse(current).unwrap()).map_or_else(
        |errors| errors.iter().map(Classified::id).collect(),
        |()| Vec::new(),
    )
}

/// Returns the lint errors when a feature with this history is removed.
fn removed(level: Level, current: &str, specs: &[Spec]) -> Vec<&'static str> {
    let feature = NewFeature::new("F", specs.iter().copied());
    let before = to_json([&*registry(level, [feature]).unwrap()]);
    lint_ids(&registry(level, []).unwrap(), &before, current)
}

/// Proves: G19, G87, S0-A24, S2-45, S2-46
#[test]
fn lint_refuses_alpha_on_ga_off_and_one_name_at_two_levels() {
    let alpha_on = server([NewFeature::new("F", [Spec::alpha("3.6").on()])]);
    assert_eq!(lint_ids(&alpha_on, NOTHING, "3.7"), ["E-LINT-ALPHA-ON"]);
    let ga_off = server([NewFeature::new("F", [Spec::ga("3.6")])]);
    assert_eq!(lint_ids(&ga_off, NOTHING, "3.7"), ["E-LINT-GA-OFF"]);
    let switch = registry(Level::Cluster, [NewFeature::new("F", [Spec::ga("3.6")])]).unwrap();
    assert_eq!(lint_ids(&switch, NOTHING, "3.7"), [""; 0]);
    let both = lint([&*ga_off, &*switch], NOTHING, v("3.7")).unwrap_err();
    assert!(both.iter().any(|error| error.id() == "E-LINT-TWO-LEVELS"));
}

/// Proves: G88, S2-13, S2-14, S2-15, C1
#[test]
fn server_feature_may_be_removed_three_minors_after_it_is_locked() {
    use Level::Server;
    let ga = [
        Spec::alpha("1.26"),
        Spec::beta("1.27").on(),
        Spec::ga("1.28").on().locked(),
    ];
    assert_eq!(removed(Server, "1.30", &ga), ["E-LINT-REMOVED-EARLY"]);
    assert_eq!(removed(Server, "1.31", &ga), [""; 0]);
    assert_eq!(
        removed(Server, "1.40", &[Spec::beta("1.26")]),
        ["E-LINT-BETA-REMOVED"]
    );
    assert_eq!(removed(Server, "1.27", &[Spec::alpha("1.26")]), [""; 0]);
    assert_eq!(
        removed(
            Server,
            "1.40",
            &[Spec::beta("1.26").on(), Spec::deprecated("1.27")]
        ),
        ["E-LINT-REMOVED-UNLOCKED"]
    );
    let deprecated = [
        Spec::beta("1.26").on(),
        Spec::deprecated("1.27"),
        Spec::deprecated("1.30").locked(),
    ];
    assert_eq!(
        removed(Server, "1.32", &deprecated),
        ["E-LINT-REMOVED-EARLY"]
    );
    assert_eq!(removed(Server, "1.33", &deprecated), [""; 0]);
    // A `Removed` entry is checked as a removal.
    let before = to_json([&*server([NewFeature::new("F", ga)])]);
    let mut with_entry = ga.to_vec();
    with_entry.push(Spec::removed("1.29"));
    let now = server([NewFeature::new("F", with_entry)]);
    assert_eq!(lint_ids(&now, &before, "1.29"), ["E-LINT-REMOVED-EARLY"]);
}

/// Proves: S0-46, S0-47
#[test]
fn cluster_feature_may_be_removed_one_minor_after_it_is_deprecated_and_locked() {
    use Level::Cluster;
    let proper = [Spec::ga("3.7").on(), Spec::deprecated("3.8").on().locked()];
    assert_eq!(removed(Cluster, "3.8", &proper), ["E-LINT-REMOVED-EARLY"]);
    assert_eq!(removed(Cluster, "3.9", &proper), [""; 0]);
    assert_eq!(
        removed(Cluster, "3.9", &[Spec::ga("3.7").on()]),
        ["E-LINT-REMOVED-NOT-DEPRECATED"]
    );
    assert_eq!(
        removed(
            Cluster,
            "3.9",
            &[Spec::ga("3.7").on(), Spec::deprecated("3.8").on()]
        ),
        ["E-LINT-REMOVED-NOT-DEPRECATED"]
    );
    assert_eq!(
        removed(
            Cluster,
            "3.9",
            &[Spec::ga("3.7").on(), Spec::deprecated("3.8").locked()]
        ),
        ["E-LINT-REMOVED-FLIPPED"]
    );
    assert_eq!(removed(Cluster, "3.9", &[Spec::alpha("3.8")]), [""; 0]);
}

/// Proves: S0-15, G87, C5
#[test]
fn lint_refuses_a_changed_entry_of_a_released_version() {
    let original = [Spec::alpha("3.6"), Spec::beta("3.7").on()];
    let before = to_json([&*server([NewFeature::new("F", original)])]);
    let now = |specs: &[Spec]| server([NewFeature::new("F", specs.iter().copied())]);
    assert_eq!(lint_ids(&now(&original), &before, "3.8"), [""; 0]);
    let mut more = original.to_vec();
    more.push(Spec::ga("3.8").on());
    assert_eq!(lint_ids(&now(&more), &before, "3.8"), [""; 0]);
    assert_eq!(
        lint_ids(
            &now(&[Spec::alpha("3.6"), Spec::beta("3.7")]),
            &before,
            "3.8"
        ),
        ["E-LINT-HISTORY"]
    );
    // The current minor may still change.
    assert_eq!(
        lint_ids(
            &now(&[Spec::alpha("3.6"), Spec::beta("3.7")]),
            &before,
            "3.7"
        ),
        [""; 0]
    );
    let moved = registry(Level::Cluster, [NewFeature::new("F", original)]).unwrap();
    assert_eq!(lint_ids(&moved, &before, "3.8"), ["E-LINT-LEVEL-CHANGED"]);
    let twice = r#"{"features":[
        {"name":"F","level":"server","specs":[{"version":"3.6","stage":"Alpha","default":false}]},
        {"name":"F","level":"server","specs":[{"version":"3.6","stage":"Beta","default":false}]}]}"#;
    let ids = lint_ids(&now(&[Spec::alpha("3.6")]), twice, "3.6");
    assert!(ids.contains(&"E-LINT-DUPLICATE"), "{ids:?}");
    assert_eq!(lint_ids(&now(&original), "{", "3.8"), ["E-BAD-DOCUMENT"]);
    let unordered = r#"{"features":[{"name":"F","level":"server","specs":[
        {"version":"3.7","stage":"Alpha","default":false},
        {"version":"3.6","stage":"Beta","default":false}]}]}"#;
    assert_eq!(
        lint_ids(&now(&original), unordered, "3.8"),
        ["E-DECREASING"]
    );
}

/// Features are added, removed and changed in minor releases only.
/// Proves: S1-7
#[test]
fn lint_refuses_any_change_of_a_feature_in_a_patch_release() {
    let specs = [Spec::alpha("3.7"), Spec::beta("3.8").on()];
    let before = to_json([&*server([NewFeature::new("F", specs)])]);
    let now = |specs: &[Spec]| server([NewFeature::new("F", specs.iter().copied())]);
    assert_eq!(lint_ids(&now(&specs), &before, "3.8.1"), [""; 0]);
    let off = [Spec::alpha("3.7"), Spec::beta("3.8")];
    let locked = [Spec::alpha("3.7"), Spec::beta("3.8").on().locked()];
    for other in [&off[..], &locked, &specs[..1]] {
        assert_eq!(lint_ids(&now(other), &before, "3.8.1"), ["E-LINT-PATCH"]);
        // Entries of a minor may change until its release.
        assert_eq!(lint_ids(&now(other), &before, "3.8.0"), [""; 0]);
    }
    let another = [
        NewFeature::new("F", specs),
        NewFeature::new("New", [Spec::alpha("3.8")]),
    ];
    let another = server(another);
    assert_eq!(lint_ids(&another, &before, "3.8.1"), ["E-LINT-PATCH"]);
    assert_eq!(lint_ids(&another, &before, "3.8"), [""; 0]);
    // Even an alpha, which any minor release may remove.
    let alpha = to_json([&*server([NewFeature::new("A", [Spec::alpha("3.8")])])]);
    assert_eq!(lint_ids(&server([]), &alpha, "3.8.1"), ["E-LINT-PATCH"]);
    let cluster = registry(Level::Cluster, [NewFeature::new("F", specs)]).unwrap();
    assert_eq!(lint_ids(&cluster, &before, "3.8.1"), ["E-LINT-PATCH"]);
    // A history has no patch versions, so no patch release can select another entry.
    assert_eq!(
        "3.8.1".parse::<MajorMinor>().unwrap(),
        MajorMinor::new(3, 8)
    );
}

/// Proves: S1-14
#[test]
fn stages_are_a_minor_apart_and_a_beta_is_off_before_it_is_locked_off() {
    // Each stage takes a minor release of its own.
    let alpha = Spec::alpha("3.6");
    let (beta, ga, deprecated) = (Spec::beta("3.7"), Spec::ga("3.8"), Spec::deprecated("3.9"));
    let life = [alpha, beta.on(), ga.on(), deprecated.on()];
    assert_eq!(
        lint_ids(&server([NewFeature::new("F", life)]), NOTHING, "3.9"),
        [""; 0]
    );
    for hasty in [
        [Spec::alpha("3.7"), Spec::beta("3.7").on()],
        [Spec::beta("3.7").on(), Spec::ga("3.7").on().locked()],
        [Spec::ga("3.7").on(), Spec::deprecated("3.7").on()],
    ] {
        let refused = |specs| registry(Level::Server, [NewFeature::new("F", specs)]).unwrap_err();
        assert_eq!(refused(hasty).id(), "E-DUP");
        let [first, second] = hasty;
        let with_minimum = [first, second.min_compat("3.7")];
        assert_eq!(refused(with_minimum).id(), "E-STAGE-SAMEVER");
    }
    // A beta that is on becomes off by default and switchable before it is locked off.
    let lint_of = |specs: &[Spec]| {
        let now = server([NewFeature::new("F", specs.iter().copied())]);
        lint_ids(&now, NOTHING, "3.9")
    };
    let lost = Spec::deprecated("3.8").locked();
    assert_eq!(
        lint_of(&[Spec::beta("3.7").on(), lost]),
        ["E-LINT-DEPRECATED-AT-ONCE"]
    );
    assert_eq!(lint_of(&[Spec::beta("3.6").on(), beta, lost]), [""; 0]);
    let slowly = [
        Spec::beta("3.7").on(),
        Spec::deprecated("3.8"),
        Spec::deprecated("3.9").locked(),
    ];
    assert_eq!(lint_of(&slowly), [""; 0]);
}

/// Proves: G89, C5
#[test]
fn documents_show_stages_defaults_locks_and_dependencies() {
    let registry = server([
        NewFeature::new("Base", [Spec::beta("3.6").on()]),
        NewFeature::new(
            "F",
            [
                Spec::alpha("3.6"),
                Spec::beta("3.7"),
                Spec::beta("3.7").on().min_compat("3.7"),
                Spec::ga("3.8").on().locked(),
            ],
        ),
        NewFeature::new("Child", [Spec::alpha("3.7")]).depending_on(["Base"]),
    ]);
    let json: serde_json::Value = serde_json::from_str(&to_json([&*registry])).unwrap();
    let feature = |name: &str| {
        let mut all = json["features"].as_array().unwrap().iter();
        all.find(|feature| feature["name"] == name).unwrap().clone()
    };
    assert_eq!(feature("Child")["depends_on"][0], "Base");
    let specs = feature("F")["specs"].clone();
    assert_eq!(
        specs[2],
        serde_json::json!({"version": "3.7", "stage": "Beta", "default": true, "locked": false,
            "min_compat": "3.7", "until": "3.8"})
    );
    assert_eq!(specs[3]["locked"], true);
    assert!(specs[3].get("until").is_none());
    let back = from_json(&to_json([&*registry])).unwrap();
    let f = back.iter().find(|feature| feature.name == "F").unwrap();
    assert_eq!(f.specs, registry.get("F").unwrap().specs);
    let table = to_markdown([&*registry]);
    assert!(table.contains("ALPHA off from 3.6 to 3.6<br>"), "{table}");
    assert!(table.contains("GA on, locked from 3.8 on"), "{table}");
}
