//! Which APIs a release serves: the filters by removal and introduction.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use portunus_apis::*;
use portunus_gates::MajorMinor;

/// beta 1.30, GA 1.33, the beta removed in 1.36.
fn graduated() -> Declarations {
    group([
        things("v1beta1", Lifecycle::since("1.30").removed("1.36")).served_by_default(true),
        things("v1", Lifecycle::since("1.33")),
    ])
}

/// Proves: G90, G92, G93, S2-21
#[test]
fn resource_is_served_from_its_introduction_until_its_removal() {
    for (emulation, expected) in [
        ("1.29", &[][..]),
        ("1.30", &["v1beta1"][..]),
        ("1.32", &["v1beta1"]),
        ("1.33", &["v1", "v1beta1"]),
        ("1.35", &["v1", "v1beta1"]),
        ("1.36", &["v1"]),
        ("1.37", &["v1"]),
    ] {
        let options = emulating("1.37.0", emulation);
        assert_eq!(
            versions_served(&graduated(), &options),
            expected,
            "{emulation}"
        );
    }
    // Nothing declared: always there.
    let always = group([things("v1", Lifecycle::always())]);
    assert_eq!(
        versions_served(&always, &emulating("1.37.0", "0.1")),
        ["v1"]
    );
}

/// Proves: G93, G94, G95
#[test]
fn removal_in_the_emulated_release_is_kept_only_by_an_alpha_build_or_the_switch() {
    // (binary, emulation, strict in alpha, one more release, is served)
    for (binary, emulation, strict, one_more, expected) in [
        ("1.36.0", "1.36", false, false, false),
        ("1.36.0", "1.36", false, true, true),
        ("1.36.0", "1.36", true, true, true),
        ("1.36.0-beta.1", "1.36", false, false, false),
        ("1.36.0-alpha.0", "1.36", false, false, true),
        ("1.36.0-alpha.0", "1.36", true, false, true),
        ("1.36.0-alpha.1", "1.36", false, false, true),
        ("1.36.0-alpha.1", "1.36", true, false, false),
        ("1.36.0-alpha.1", "1.36", true, true, false),
        // The pre-release is the one of the binary, although 1.36 is emulated.
        ("1.37.0-alpha.1", "1.36", false, false, true),
        ("1.37.0", "1.36", false, false, false),
        // Neither helps one release later.
        ("1.37.0-alpha.1", "1.37", false, true, false),
    ] {
        let mut options = emulating(binary, emulation);
        options.strict_removal_in_alpha = strict;
        options.serve_removed_one_more_release = one_more;
        let served = versions_served(&graduated(), &options);
        let is_served = served.contains(&"v1beta1".to_owned());
        assert_eq!(
            is_served, expected,
            "{binary} as {emulation}, {strict}, {one_more}"
        );
    }
}

/// Proves: G94
#[test]
fn environment_switch_that_is_no_boolean_is_refused() {
    let options = binary("1.36.0")
        .with_environment(Some("1"), Some("F"))
        .unwrap();
    assert!(options.serve_removed_one_more_release && !options.strict_removal_in_alpha);
    let error = binary("1.36.0")
        .with_environment(Some("yes"), None)
        .unwrap_err();
    assert!(
        error.to_string().contains("FOR_ONE_RELEASE=\"yes\""),
        "{error}"
    );
    assert!(binary("1.36.0").with_environment(None, Some("")).is_err());
}

fn scaled(kind: GroupVersionKind) -> Declarations {
    let resource = Resource::new("things", "Thing", Lifecycle::since("1.30"))
        .with_subresource(Subresource::new("status"))
        .with_subresource(Subresource::new("scale").with_kind(kind));
    let group = Group::new(GROUP).with_version(Version::new("v1").with_resource(resource));
    Declarations::new([group]).unwrap()
}

/// Proves: G96
#[test]
fn subresource_is_judged_by_its_own_kind_and_dropped_where_no_declaration_has_it() {
    let scale = || GroupVersionKind::new("autoscaling", "v1", "Scale");
    let unknown = resolve(&scaled(scale()), &binary("1.36.0")).unwrap();
    assert_eq!(
        served(&unknown),
        ["example.io/v1/things", "example.io/v1/things/status"]
    );
    assert_eq!(
        unknown.reason(GROUP, "v1", "things/scale"),
        Some(&NotServed::KindNotDeclared)
    );
    let known = scaled(scale()).with_kind(scale(), Lifecycle::since("1.34").removed("1.36"));
    for (emulation, expected) in [("1.33", 2), ("1.34", 3), ("1.35", 3), ("1.36", 2)] {
        let apis = resolve(&known, &emulating("1.36.0", emulation)).unwrap();
        assert_eq!(served(&apis).len(), expected, "{emulation}");
    }
}

/// Proves: G97
#[test]
fn dropping_a_resource_drops_its_subresources_and_empty_versions_and_groups() {
    let resource = |lifecycle| {
        Resource::new("things", "Thing", lifecycle).with_subresource(Subresource::new("status"))
    };
    let groups = || {
        [
            Group::new(GROUP)
                .with_version(Version::new("v1").with_resource(resource(Lifecycle::since("1.30"))))
                .with_version(
                    Version::new("v1beta1")
                        .served_by_default(true)
                        .with_resource(resource(Lifecycle::since("1.20").removed("1.30"))),
                ),
            Group::new("future.io")
                .with_version(Version::new("v1").with_resource(resource(Lifecycle::since("1.37")))),
        ]
    };
    let declarations = Declarations::new(groups()).unwrap();
    let apis = resolve(&declarations, &emulating("1.37.0", "1.36")).unwrap();
    assert_eq!(
        served(&apis),
        ["example.io/v1/things", "example.io/v1/things/status"]
    );
    assert!(apis.group("future.io").is_none());
    assert!(apis.version(GROUP, "v1beta1").is_none());
    assert_eq!(
        apis.log_lines(),
        [
            "Removing resource things.v1beta1.example.io because it is time to stop serving it \
             per APILifecycle.",
            "Removing resource things/status.v1beta1.example.io because it is time to stop \
             serving it per APILifecycle.",
            "Removing resource things.v1.future.io because it is introduced after the current \
             version 1.36 per APILifecycle.",
            "Removing resource things/status.v1.future.io because it is introduced after the \
             current version 1.36 per APILifecycle.",
        ]
    );
}

/// Proves: G98
#[test]
fn removal_is_judged_before_introduction() {
    // A removed lower version does not make the higher one forward-compatible.
    let declarations = group([
        things("v1beta1", Lifecycle::since("1.30").removed("1.35")).served_by_default(true),
        things("v1", Lifecycle::since("1.36")),
    ]);
    let mut options = emulating("1.36.0", "1.35");
    options.forward.emulation = true;
    assert!(versions_served(&declarations, &options).is_empty());
    let mut before = emulating("1.36.0", "1.34");
    before.forward.emulation = true;
    assert_eq!(versions_served(&declarations, &before), ["v1", "v1beta1"]);
}

#[test]
fn lookup_tells_served_from_known_from_unknown() {
    let apis = resolve(&graduated(), &emulating("1.37.0", "1.36")).unwrap();
    let Lookup::Served(found) = apis.lookup(GROUP, "v1", "things") else {
        panic!("v1 is served");
    };
    assert_eq!(found.kind(), GroupVersionKind::new(GROUP, "v1", "Thing"));
    let Lookup::NotServed(reason) = apis.lookup(GROUP, "v1beta1", "things") else {
        panic!("v1beta1 is known");
    };
    assert_eq!(
        reason.to_string(),
        "it was removed in 1.36, and this server emulates 1.36"
    );
    for (group, version, plural) in [
        (GROUP, "v1", "others"),
        (GROUP, "v2", "things"),
        ("other.io", "v1", "things"),
        ("", "v1", "things"),
    ] {
        assert_eq!(apis.lookup(group, version, plural), Lookup::Unknown);
    }
}

/// Proves: C11
#[test]
fn default_that_depends_on_the_release_is_judged_at_the_emulated_one() {
    let beta = things("v1beta1", Lifecycle::since("1.30").kept())
        .served_by_default(true)
        .served_by_default_from(MajorMinor::literal("1.35"), false);
    let declarations = group([beta]);
    for (emulation, expected) in [("1.34", 1), ("1.35", 0), ("1.36", 0)] {
        let options = emulating("1.36.0", emulation);
        assert_eq!(versions_served(&declarations, &options).len(), expected);
    }
}
