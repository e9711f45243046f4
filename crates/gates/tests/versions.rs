//! Effective versions and components.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::*;
use portunus_gates::*;

fn binary(text: &str) -> EffectiveVersion {
    EffectiveVersion::new(Version::parse(text).unwrap())
}

fn range_ids(version: &EffectiveVersion) -> Vec<&'static str> {
    version.validate().map_or_else(
        |errors| errors.0.iter().map(Classified::id).collect(),
        |()| Vec::new(),
    )
}

fn pair(version: &EffectiveVersion) -> String {
    format!("{}/{}", version.emulation(), version.min_compat())
}

/// Proves: G65, G66, S2-2
#[test]
fn setting_the_emulation_version_resets_the_minimum_compatibility_version() {
    let mut version = binary("1.37.2").with_floors(v("1.34"), v("1.34"));
    assert_eq!(pair(&version), "1.37/1.36");
    version.set_min_compat(v("1.35"));
    version.set_emulation(v("1.36"));
    assert_eq!(pair(&version), "1.36/1.35");
    version.set_emulation(v("1.34"));
    assert_eq!(pair(&version), "1.34/1.34", "raised to its floor");
    version.set_min_compat(v("1.30"));
    assert_eq!(pair(&version), "1.34/1.30", "set as given, validated later");
    // The constructor does not apply floors.
    assert_eq!(
        pair(&binary("1.31").with_floors(v("1.31"), v("1.31"))),
        "1.31/1.30"
    );
}

/// Proves: G67, S2-1, S2-3, S2-40, S2-A8, X13
#[test]
fn versions_out_of_range_are_refused() {
    let mut version = binary("1.37.0-alpha.2").with_usual_floors(v("1.31"));
    assert_eq!(range_ids(&version), [""; 0]);
    // An alpha binary emulates its own minor.
    version.set_emulation(v("1.37"));
    assert_eq!(range_ids(&version), [""; 0]);
    version.set_emulation(v("1.38"));
    assert_eq!(range_ids(&version), ["E-EMU-RANGE"]);
    version.set_emulation(v("1.33"));
    assert_eq!(range_ids(&version), ["E-EMU-RANGE", "E-MINCOMPAT-RANGE"]);
    let shown = version.validate().unwrap_err().to_string();
    assert!(shown.contains("choose one from 1.34 to 1.37"), "{shown}");
    version.set_emulation(v("1.35"));
    version.set_min_compat(v("1.36"));
    assert_eq!(range_ids(&version), ["E-MINCOMPAT-RANGE"]);
    // Without floors any version up to the binary's is in range.
    let mut free = binary("1.37");
    free.set_emulation(v("1.0"));
    assert_eq!(range_ids(&free), [""; 0]);
    let mut first = binary("1.31").with_floors(v("1.30"), v("1.30"));
    first.set_emulation(v("1.29"));
    assert!(range_ids(&first).contains(&"E-EMU-RANGE"));
}

/// Proves: G68, G69
#[test]
fn help_shows_the_range_from_floor_to_binary_version() {
    let version = binary("1.37.3").with_usual_floors(v("1.31"));
    assert_eq!(version.emulation_help(), "1.34..1.37(default:1.37)");
    assert_eq!(version.min_compat_help(), "1.34..1.37(default:1.36)");
    let clamped = binary("1.33").with_usual_floors(v("1.31"));
    assert_eq!(clamped.emulation_help(), "1.31..1.33(default:1.33)");
    let unreleased = EffectiveVersion::for_build(Version::parse("0.0.0").unwrap(), v("1.37"));
    assert_eq!(unreleased.emulation(), v("1.37"));
    let released = EffectiveVersion::for_build(Version::parse("1.36.1").unwrap(), v("1.37"));
    assert_eq!(released.emulation(), v("1.36"));
}

/// Proves: G70, G58, S2-24, S2-47, S2-A2
#[test]
fn version_reply_and_metric_hold_all_three_versions() {
    let mut version = binary("1.37.1");
    version.set_emulation(v("1.36"));
    let json = serde_json::to_value(version.info(None)).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "major": "1", "minor": "37",
            "emulationMajor": "1", "emulationMinor": "36",
            "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
            "gitVersion": "v1.37.1",
        })
    );
    let zero = serde_json::to_value(binary("1.0").info(Some("v1.0.0-git"))).unwrap();
    assert_eq!(zero["minor"], "");
    assert!(zero.get("emulationMinor").is_none());
    assert_eq!(zero["gitVersion"], "v1.0.0-git");
    let sample = version_sample("kube", &version);
    assert_eq!(sample.metric, "version_info");
    let labels: Vec<&str> = sample
        .labels
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(labels, ["kube", "1.37.1", "1.36", "1.35"]);
}

/// Proves: S2-18, S2-41
#[test]
fn format_is_written_once_the_minimum_compatibility_version_can_read_it() {
    let since = v("3.8");
    let mut version = binary("3.9").with_floors(v("3.6"), v("3.6"));
    let mut may_write = |emulation: &str, min_compat: Option<&str>| {
        version.set_emulation(v(emulation));
        if let Some(min_compat) = min_compat {
            version.set_min_compat(v(min_compat));
        }
        version.validate().unwrap();
        version.may_write(since)
    };
    assert!(!may_write("3.7", None));
    assert!(!may_write("3.8", None), "its data can go back to 3.7");
    assert!(may_write("3.8", Some("3.8")), "a new cluster cannot");
    assert!(may_write("3.9", None));
    assert!(!may_write("3.9", Some("3.7")));
}

/// Proves: S2-27, S2-A12
#[test]
fn client_skew_is_classified_by_component_and_version() {
    let mut server = binary("3.8").with_floors(v("3.5"), v("3.5"));
    let skew_text = |server: &EffectiveVersion, client: &str| server.skew_of(v(client)).text();
    for (client, expected) in [
        ("3.8", "same"),
        ("3.7", "older"),
        ("3.6", "outside"),
        ("3.9", "newer"),
        ("3.10", "outside"),
        ("2.8", "outside"),
        ("4.0", "outside"),
    ] {
        assert_eq!(skew_text(&server, client), expected, "{client}");
    }
    // The emulation and minimum compatibility versions count, not the binary version.
    server.set_emulation(v("3.7"));
    assert_eq!(skew_text(&server, "3.8"), "newer");
    server.set_min_compat(v("3.5"));
    assert_eq!(skew_text(&server, "3.5"), "older");
    for (agent, component) in [
        ("portctl/v3.8.0", Some(("portctl", v("3.8")))),
        (
            "portctl/v3.7.12-rc.1 tonic/0.14",
            Some(("portctl", v("3.7"))),
        ),
        (
            "kubectl/v1.36.0 (linux/amd64)",
            Some(("kubectl", v("1.36"))),
        ),
        ("grpc-go/1.71.0", None),
        ("portctl/v3", None),
        ("portctl/v3.8.0.1", None),
        ("portctl", None),
        ("/v3.8.0", None),
        ("", None),
    ] {
        assert_eq!(component_of(agent), component, "{agent}");
    }
}

/// Proves: G83, G84
#[test]
fn forward_compatibility_flags_are_refused_without_emulation() {
    let mut version = binary("1.37");
    let both = [(true, false), (false, true), (true, true)];
    for (emulation, runtime_config) in both {
        let flags = ForwardCompatibility {
            emulation,
            runtime_config,
        };
        assert_eq!(
            flags.validate(&version).unwrap_err().id(),
            "E-FORWARD-WITHOUT-EMULATION"
        );
    }
    assert!(ForwardCompatibility::default().validate(&version).is_ok());
    version.set_emulation(v("1.36"));
    let flags = ForwardCompatibility {
        emulation: true,
        runtime_config: true,
    };
    assert!(flags.validate(&version).is_ok());
}

fn features() -> Arc<Registry> {
    server([
        NewFeature::new("A", [Spec::alpha("1.36"), Spec::beta("1.37").on()]),
        NewFeature::new("W", [Spec::beta("1.2"), Spec::beta("1.3").on()]),
    ])
}

/// kube 1.34..1.37 and wardle 1.1..1.3, where wardle 1.N follows kube 1.(N+34).
fn kube_and_wardle() -> Components {
    let mut components = Components::new();
    let kube = binary("1.37").with_usual_floors(v("1.31"));
    components.register("kube", kube, Some(features())).unwrap();
    let wardle = binary("1.3").with_floors(v("1.1"), v("1.0"));
    components
        .register("wardle", wardle, Some(features()))
        .unwrap();
    components
}

fn follow(kube: MajorMinor) -> Option<MajorMinor> {
    (kube.major() == 1 && kube.minor() >= 34).then(|| MajorMinor::new(1, kube.minor() - 34))
}

fn set(
    components: &mut Components,
    emulation: &[&str],
    min: &[&str],
    gates: &[&str],
) -> &'static str {
    let result = ComponentFlags::parse(emulation, min, gates)
        .map_err(ComponentError::from)
        .and_then(|flags| components.set(&flags));
    result.map_or_else(|error| error.id(), |()| "ok")
}

/// Proves: G71, G72, S2-A13
#[test]
fn components_register_once_and_gates_follow_their_versions() {
    let mut components = kube_and_wardle();
    let again = components.register("kube", binary("1.37"), None);
    assert_eq!(again.unwrap_err().id(), "E-COMP-DUP");
    let found = components
        .get_or_register("kube", binary("9.9"), None)
        .unwrap();
    assert_eq!(found.emulation(), v("1.37"));
    assert_eq!(
        components.gates("kube").unwrap().versions(),
        at("1.37", "1.36")
    );
    assert!(components.version("missing").is_none());
    assert!(components.gates("missing").is_none());
}

/// Proves: G73, G74, C3
#[test]
fn mapped_component_follows_its_source_and_takes_no_flag() {
    let mut components = kube_and_wardle();
    components
        .map_version("kube", "wardle", Arc::new(follow))
        .unwrap();
    // Applied at once; the minimum is one minor below, not the mapped minimum.
    assert_eq!(pair(components.version("wardle").unwrap()), "1.3/1.2");
    assert_eq!(
        components.gates("wardle").unwrap().versions(),
        components.version("wardle").unwrap().versions()
    );
    let unknown = components.map_version("kube", "missing", Arc::new(follow));
    assert_eq!(unknown.unwrap_err().id(), "E-COMP-UNKNOWN");
    let unknown = components.map_version("missing", "kube", Arc::new(follow));
    assert_eq!(unknown.unwrap_err().id(), "E-COMP-UNKNOWN");
    let back = components.map_version("wardle", "kube", Arc::new(Some));
    assert_eq!(back.unwrap_err().id(), "E-MAP-LOOP");
    components.register("third", binary("1.3"), None).unwrap();
    let second_source = components.map_version("third", "wardle", Arc::new(Some));
    assert_eq!(second_source.unwrap_err().id(), "E-MAP-MULTI");
    let nothing = components.map_version("kube", "third", Arc::new(|_| None));
    assert_eq!(nothing.unwrap_err().id(), "E-MAP-NIL");
    // The refused calls changed nothing.
    assert_eq!(set(&mut components, &["1.36"], &[], &[]), "ok");
    assert_eq!(pair(components.version("third").unwrap()), "1.3/1.2");
    // A mapped component takes no flag and is not listed in the help.
    assert_eq!(
        set(&mut components, &["wardle=1.2"], &[], &[]),
        "E-MAP-FLAG"
    );
    let help = components.add_flags();
    assert!(
        help.emulated_version
            .iter()
            .all(|line| !line.starts_with("wardle"))
    );
    // A mapped version out of the target's range becomes the nearest one in range.
    let mut components = kube_and_wardle();
    components
        .map_version("kube", "wardle", Arc::new(|_| Some(v("2.0"))))
        .unwrap();
    assert_eq!(pair(components.version("wardle").unwrap()), "1.3/1.2");
}

/// Proves: G75, G76, G82
#[test]
fn flags_apply_through_mappings_to_versions_and_gates_or_not_at_all() {
    let mut components = kube_and_wardle();
    components
        .map_version("kube", "wardle", Arc::new(follow))
        .unwrap();
    let before = format!("{components:?}");
    assert_eq!(set(&mut components, &[], &[], &[]), "ok");
    assert_eq!(pair(components.version("kube").unwrap()), "1.37/1.36");

    assert_eq!(
        set(
            &mut components,
            &["1.36"],
            &["1.36"],
            &["A=true", "wardle:W=false"]
        ),
        "ok"
    );
    assert_eq!(pair(components.version("kube").unwrap()), "1.36/1.36");
    // The same mapping is applied to the minimum.
    assert_eq!(pair(components.version("wardle").unwrap()), "1.2/1.2");
    let gates = components.gates("kube").unwrap();
    assert_eq!(gates.versions(), at("1.36", "1.36"));
    assert!(gates.try_enabled("A").unwrap());

    let mut fresh = kube_and_wardle();
    fresh
        .map_version("kube", "wardle", Arc::new(follow))
        .unwrap();
    for (emulation, gate, expected) in [
        ("kube=1.36", "Missing=true", "E-UNKNOWN"),
        ("kube=1.36", "missing:A=true", "E-COMP-UNKNOWN"),
        ("missing=1.36", "A=true", "E-COMP-UNKNOWN"),
        ("kube=1.20", "A=true", "E-MAP-NIL"),
        ("kube=1.36", "A=true,kube:A=true", "E-MIXED-PREFIX"),
    ] {
        assert_eq!(
            set(&mut fresh, &[emulation], &[], &[gate]),
            expected,
            "{emulation} {gate}"
        );
        assert_eq!(
            format!("{fresh:?}"),
            before,
            "a refused call changes nothing"
        );
    }
    fresh.register("plain", binary("1.0"), None).unwrap();
    assert_eq!(
        set(&mut fresh, &[], &[], &["plain:A=true"]),
        "E-COMP-NOGATE"
    );
}

/// Proves: G77, G79, G86, C12
#[test]
fn registration_is_closed_by_add_flags_and_fallback_applies_defaults_once() {
    let mut components = kube_and_wardle();
    let help = components.add_flags();
    assert_eq!(help.emulated_version[0], "kube=1.34..1.37(default:1.37)");
    assert!(
        help.feature_gates
            .iter()
            .any(|line| line.starts_with("wardle:W=true|false"))
    );
    assert_eq!(
        components.add_flags(),
        help,
        "may be called for several flag sets"
    );
    let late = components.register("late", binary("1.0"), None);
    assert_eq!(late.unwrap_err().id(), "E-CLOSED");
    // Before flags are set, the fallback applies defaults and returns true.
    assert!(components.clone().set_fallback().unwrap());
    assert_eq!(set(&mut components, &["1.36"], &[], &["A=true"]), "ok");
    assert!(!components.set_fallback().unwrap());
    assert!(components.gates("kube").unwrap().explicitly_set("A"));
    let samples = components.samples(KUBERNETES_FEATURE_ENABLED);
    assert!(samples.iter().any(|sample| sample.metric == "version_info"));
    assert!(
        samples
            .iter()
            .any(|sample| sample.metric == "kubernetes_feature_enabled")
    );
}

/// Proves: G78, S2-A3
#[test]
fn alpha_feature_under_emulation_is_a_warning_and_in_strict_mode_an_error() {
    let mut components = kube_and_wardle();
    assert_eq!(set(&mut components, &["1.36"], &[], &["A=true"]), "ok");
    let warnings = components.validate(false).unwrap();
    assert!(
        matches!(&warnings[..], [Warning::AlphaUnderEmulation { name, .. }] if name == "A"),
        "{warnings:?}"
    );
    let errors = components.validate(true).unwrap_err();
    assert!(matches!(
        &errors[..],
        [ValidateError::AlphaUnderEmulation { .. }]
    ));
    // No warning without emulation; a version out of range is always an error.
    let mut plain = kube_and_wardle();
    assert_eq!(plain.validate(true), Ok(Vec::new()));
    assert_eq!(set(&mut plain, &["1.30"], &[], &[]), "ok");
    assert!(matches!(
        &plain.validate(false).unwrap_err()[..],
        [ValidateError::Range { .. }]
    ));
}
