//! Storage versions: Kubernetes' rule, and the window of releases that must read them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use portunus_apis::*;

fn stored(declarations: &Declarations, options: &Options) -> (String, StorageRule) {
    let apis = resolve(declarations, options).unwrap_or_else(|error| panic!("{error}"));
    let storage = apis.storage_version(GROUP, "things").unwrap();
    (storage.version.to_string(), storage.rule)
}

fn warnings(declarations: &Declarations, options: &Options) -> Vec<String> {
    let apis = resolve(declarations, options).unwrap();
    apis.warnings().iter().map(ToString::to_string).collect()
}

/// alpha 1.28, beta 1.30, GA 1.33; nothing removed.
fn graduated() -> Declarations {
    group([
        things("v1alpha1", Lifecycle::since("1.28").kept()),
        things("v1beta1", Lifecycle::since("1.30").kept()).served_by_default(true),
        things("v1", Lifecycle::since("1.33")),
    ])
}

/// Proves: G119
#[test]
fn storage_version_fixed_by_hand_comes_first() {
    let mut options = binary("1.37.0");
    let things = || GroupResource::new(GROUP, "things");
    options.storage_overrides.insert(things(), "v1beta1".into());
    assert_eq!(
        stored(&graduated(), &options),
        ("v1beta1".to_owned(), StorageRule::Override)
    );
    options.storage_overrides.insert(things(), "v9".into());
    let (ids, text) = refusal(&graduated(), &options);
    assert_eq!(ids, ["E-API-STORAGE-OVERRIDE"]);
    assert!(
        text.contains("cannot store things.example.io as v9"),
        "{text}"
    );
}

/// Proves: G120, G122, C6, S2-20
#[test]
fn storage_version_is_the_newest_that_the_window_can_read() {
    for (emulation, expected, rule) in [
        // Only the alpha exists yet.
        ("1.29", "v1alpha1", StorageRule::Emulation),
        // The release of the first beta stores beta, although 1.29 cannot read it.
        ("1.30", "v1beta1", StorageRule::Emulation),
        ("1.31", "v1beta1", StorageRule::MinCompat),
        // GA is stored one release after its introduction.
        ("1.33", "v1beta1", StorageRule::MinCompat),
        ("1.34", "v1", StorageRule::MinCompat),
        // Nothing exists yet: the binary's top version, which nobody serves.
        ("1.27", "v1", StorageRule::Binary),
    ] {
        assert_eq!(
            stored(&graduated(), &emulating("1.37.0", emulation)),
            (expected.to_owned(), rule),
            "{emulation}"
        );
    }
}

/// Proves: S2-20
#[test]
fn storage_version_that_a_release_in_the_window_cannot_read_is_reported() {
    assert_eq!(
        warnings(&graduated(), &emulating("1.37.0", "1.30")),
        [
            "things.example.io is stored as v1beta1, which release 1.29 cannot read: \
             do not roll to such a release while objects are stored"
        ]
    );
    assert!(warnings(&graduated(), &emulating("1.37.0", "1.31")).is_empty());
    // Nothing is served, so nothing is stored.
    assert!(warnings(&graduated(), &emulating("1.37.0", "1.27")).is_empty());
    // A brand-new cluster that promises no rollback may use it at once.
    let mut options = emulating("1.37.0", "1.33");
    options.versions.set_min_compat(v("1.33"));
    assert_eq!(stored(&graduated(), &options).0, "v1");
    assert!(warnings(&graduated(), &options).is_empty());
}

/// Proves: G121
#[test]
fn storage_version_ignores_lifecycles_at_min_compat_zero() {
    let declarations = group([
        things("v1alpha1", Lifecycle::always()).served_by_default(true),
        things("v1beta1", Lifecycle::since("1.40")),
    ]);
    let mut options = binary("1.37.0");
    options.versions.set_min_compat(v("0.0"));
    assert_eq!(stored(&declarations, &options).0, "v1beta1");
    assert!(warnings(&declarations, &options).is_empty());
}

/// Proves: S2-A6, S2-20
#[test]
fn storage_version_is_never_one_removed_at_emulation() {
    // Kubernetes' rule would store v2beta1 in all of these: the first beta that 1.35 has.
    for (removed, v1_since, expected, rule, unreadable) in [
        // Not removed in the window 1.35, 1.36, 1.37.
        ("1.38", "1.30", "v2beta1", StorageRule::MinCompat, ""),
        // The next release cannot read it, but v1beta1 is readable everywhere.
        ("1.37", "1.30", "v1beta1", StorageRule::Window, ""),
        ("1.36", "1.30", "v1beta1", StorageRule::Window, ""),
        // Nothing else is readable everywhere.
        ("1.37", "1.36", "v2beta1", StorageRule::MinCompat, "1.37"),
        ("1.36", "1.36", "v1beta1", StorageRule::NotRemoved, "1.35"),
    ] {
        let declarations = group([
            things("v2beta1", Lifecycle::since("1.30").removed(removed)).served_by_default(true),
            things("v1beta1", Lifecycle::introduced_in(v(v1_since)).kept()).served_by_default(true),
        ]);
        let options = binary("1.36.0");
        assert_eq!(
            stored(&declarations, &options),
            (expected.to_owned(), rule),
            "removed in {removed}, v1beta1 since {v1_since}"
        );
        let warned = warnings(&declarations, &options);
        match unreadable {
            "" => assert!(warned.is_empty(), "{warned:?}"),
            release => assert!(
                warned[0].contains(&format!("which release {release} cannot read")),
                "{warned:?}"
            ),
        }
    }
}

/// Proves: G123
#[test]
fn stored_version_stays_declared_when_it_is_not_served() {
    // Decoding goes by the declarations, which no flag changes.
    let options = with_config(binary("1.37.0"), "example.io/v1beta1=false");
    let apis = resolve(&graduated(), &options).unwrap();
    assert!(apis.version(GROUP, "v1beta1").is_none());
    let name = GroupVersionKind::new(GROUP, "v1beta1", "Thing");
    assert!(graduated().releases_of_kind(&name).is_some());
    let stored = emulating("1.37.0", "1.33");
    let stored = with_config(stored, "example.io/v1beta1=false");
    let apis = resolve(&graduated(), &stored).unwrap();
    assert_eq!(served(&apis), ["example.io/v1/things"]);
    let storage = apis.storage_version(GROUP, "things").unwrap();
    assert_eq!(storage.version.as_str(), "v1beta1", "stored but not served");
}

/// Proves: C4
#[test]
fn binary_serves_the_apis_of_three_minors_back_and_no_further() {
    use portunus_gates::{EffectiveVersion, MajorMinor, Version as Release};
    let versions = EffectiveVersion::new(Release::parse("1.37.0").unwrap())
        .with_usual_floors(MajorMinor::literal("1.31"));
    for (emulation, is_allowed) in [
        ("1.33", false),
        ("1.34", true),
        ("1.37", true),
        ("1.38", false),
    ] {
        let mut options = Options::new(versions.clone());
        options.versions.set_emulation(v(emulation));
        let outcome = resolve(&graduated(), &options);
        assert_eq!(outcome.is_ok(), is_allowed, "{emulation}");
    }
}

/// The versions of `things` in a group that every release of the window has, without alphas,
/// release by release.
fn readable_everywhere(
    declarations: &Declarations,
    options: &Options,
    resource: &GroupResource,
) -> Vec<VersionName> {
    let (first, last) = (options.versions.min_compat(), options.versions.emulation());
    let window = (first.minor()..=last.minor() + 1)
        .map(|minor| portunus_gates::MajorMinor::new(first.major(), minor));
    let mut found: Vec<VersionName> = declarations
        .resources()
        .filter(|(name, _)| name.group_resource() == *resource)
        .filter(|(name, declared)| {
            let releases = declared.lifecycle.at(name.version.stability());
            let is_removed = |release| releases.removed.is_some_and(|removed| removed <= release);
            let mut window = window.clone();
            !name.version.as_str().contains("alpha")
                && window.all(|release| releases.introduced <= release && !is_removed(release))
        })
        .map(|(name, _)| name.version)
        .collect();
    found.sort();
    found
}

/// Proves: S2-20, S2-A6
#[test]
fn storage_version_is_the_newest_of_the_intersection_wherever_there_is_one() {
    use common::generated::{self, Random};
    let (mut compared, mut by_removal) = (0, 0);
    for case in 0..10_000 {
        let random = &mut Random::of_case(case);
        let declarations = generated::declarations(random);
        let options = generated::options(random, &declarations);
        let Ok(apis) = resolve(&declarations, &options) else {
            continue;
        };
        for (name, storage) in apis.storage_versions() {
            let readable = readable_everywhere(&declarations, &options, name);
            if let Some(newest) = readable.last() {
                assert_eq!(storage.version, *newest, "case {case}, {name}");
                assert!(storage.unreadable_in.is_empty(), "case {case}, {name}");
                compared += 1;
                by_removal += usize::from(storage.rule == StorageRule::Window);
            }
        }
    }
    assert!(
        compared > 5_000 && by_removal > 500,
        "{compared} {by_removal}"
    );
}
