//! Comparison with kube-apiserver's own functions on random questions.
//!
//! Skipped with a printed notice where Go or its modules cannot be had.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use common::generated::{self, Random};
use common::{GROUP, oracle};
use portunus_apis::discovery::storage_version_hash;
use portunus_apis::*;
use portunus_gates::{EffectiveVersion, MajorMinor, Version as Release};
use serde_json::{Value, json};

const CASES: u64 = 100_000;

fn number(release: MajorMinor) -> Value {
    json!([release.major(), release.minor()])
}

/// The names of random versions, kube-like and not.
fn version_name(random: &mut Random) -> String {
    const DIGITS: [&str; 8] = ["", "0", "1", "2", "01", "10", "99999999999999999999", "1x"];
    const MIDDLES: [&str; 6] = ["", "", "alpha", "beta", "gamma", "alphabeta"];
    const STARTS: [&str; 6] = ["v", "v", "v", "v", "", "V"];
    let mut part = |from: &[&'static str]| *random.pick(from);
    let (start, major) = (part(&STARTS), part(&DIGITS));
    format!("{start}{major}{}{}", part(&MIDDLES), part(&DIGITS))
}

fn two_names(case: u64) -> (String, String) {
    let random = &mut Random::of_case(case);
    (version_name(random), version_name(random))
}

/// Proves: G112
#[test]
fn order_of_versions_equals_kubernetes() {
    oracle::compare(
        "order_of_versions_equals_kubernetes",
        CASES,
        |case| {
            let (left, right) = two_names(case);
            json!({"op": "compare", "left": left, "right": right})
        },
        |case, answer| {
            let (left, right) = two_names(case);
            let ours = match compare_kube_aware(&left, &right) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            };
            assert_eq!(answer["order"], ours, "case {case}: {left} against {right}");
        },
    );
}

fn declarations_and_options(case: u64) -> (Declarations, Options) {
    let random = &mut Random::of_case(case);
    let declarations = generated::declarations(random);
    let options = generated::options(random, &declarations);
    (declarations, options)
}

fn version_toggle(name: &GroupVersion, on: bool) -> Value {
    json!({"name": [name.group, name.version], "on": on})
}

fn resource_toggle(name: &GroupVersionResource, on: bool) -> Value {
    json!({"name": [name.group, name.version, name.resource], "on": on})
}

fn merge_question(case: u64) -> Value {
    let (declarations, options) = declarations_and_options(case);
    let groups: BTreeMap<&str, Vec<&str>> = declarations
        .groups()
        .iter()
        .map(|group| {
            let versions = group.versions.iter().map(|version| version.name.as_str());
            (group.name.as_str(), versions.collect())
        })
        .collect();
    let defaults = Enablement::defaults(&declarations, &options);
    let versions = defaults
        .versions()
        .map(|(name, it)| version_toggle(name, it.on));
    let resources = defaults.resources();
    let resources = resources.map(|(name, it)| resource_toggle(name, it.on));
    let config: BTreeMap<&str, &str> = options.runtime_config.iter().collect();
    json!({
        "op": "merge",
        "groups": groups,
        "defaults": versions.chain(resources).collect::<Vec<_>>(),
        "config": config,
        "forward": options.forward.emulation,
    })
}

/// The switches of an answer by their names.
fn toggles(answer: &Value, field: &str) -> BTreeMap<String, bool> {
    let toggles = answer[field].as_array().map_or(&[][..], Vec::as_slice);
    let pairs = toggles
        .iter()
        .map(|it| (it["name"].to_string(), it["on"] == true));
    pairs.collect()
}

fn ours(toggles: impl Iterator<Item = Value>) -> BTreeMap<String, bool> {
    let pairs = toggles.map(|it| (it["name"].to_string(), it["on"] == true));
    pairs.collect()
}

/// Compares one map of switches. Where forward compatibility enables a switch that is present
/// and off, Kubernetes' answer depends on the order of a hash map; ours is on.
fn compare_toggles(
    case: u64,
    is_forward: bool,
    ours: &BTreeMap<String, bool>,
    theirs: &BTreeMap<String, bool>,
    before: &BTreeMap<String, bool>,
) {
    assert!(
        ours.keys().eq(theirs.keys()),
        "case {case}: {ours:?} {theirs:?}"
    );
    for (name, on) in ours {
        let may_differ = is_forward && *on && before.get(name) == Some(&false);
        assert!(
            theirs[name] == *on || may_differ,
            "case {case}: {name} is {on}"
        );
    }
}

/// Proves: G103, G105, G106, G108, G109, G110, C14
#[test]
fn runtime_config_merge_equals_kubernetes() {
    let (mut merged, mut refused) = (0, 0);
    oracle::compare(
        "runtime_config_merge_equals_kubernetes",
        CASES,
        merge_question,
        |case, answer| {
            let (declarations, options) = declarations_and_options(case);
            let theirs = answer["error"].as_str();
            let enablement = match Enablement::merge(&declarations, &options) {
                Ok(enablement) => enablement,
                Err(errors) => {
                    refused += 1;
                    check_refusal(case, &errors, theirs);
                    return;
                }
            };
            merged += 1;
            assert_eq!(theirs, None, "case {case}");
            let mut options_before = options.clone();
            options_before.forward.emulation = false;
            let before = Enablement::merge(&declarations, &options_before).unwrap();
            let versions =
                |it: &Enablement| ours(it.versions().map(|(name, it)| version_toggle(name, it.on)));
            let resources = |it: &Enablement| {
                ours(
                    it.resources()
                        .map(|(name, it)| resource_toggle(name, it.on)),
                )
            };
            let is_forward = options.forward.emulation;
            for (field, own, old) in [
                ("versions", versions(&enablement), versions(&before)),
                ("resources", resources(&enablement), resources(&before)),
            ] {
                compare_toggles(case, is_forward, &own, &toggles(answer, field), &old);
            }
            let explicit = enablement.explicit_versions();
            let explicit = ours(explicit.map(|(name, on)| version_toggle(name, on)));
            assert_eq!(
                explicit,
                toggles(answer, "explicit_versions"),
                "case {case}"
            );
            let explicit = enablement.explicit_resources();
            let explicit = ours(explicit.map(|(name, on)| resource_toggle(name, on)));
            assert_eq!(
                explicit,
                toggles(answer, "explicit_resources"),
                "case {case}"
            );
        },
    );
    if merged + refused > 0 {
        assert!(
            merged > CASES / 2 && refused > CASES / 100,
            "{merged} {refused}"
        );
    }
}

/// Kubernetes reports the first error; ours must contain it. It does not check groups and the
/// whole of runtime-config in this function, but before.
fn check_refusal(case: u64, errors: &[RuntimeConfigError], theirs: Option<&str>) {
    let is_checked_before = |error: &RuntimeConfigError| {
        matches!(
            error,
            RuntimeConfigError::UnknownGroups { .. } | RuntimeConfigError::Nothing
        )
    };
    match theirs {
        None => assert!(
            errors.iter().all(is_checked_before),
            "case {case}: {errors:?}"
        ),
        Some(text) => {
            let is_theirs = errors.iter().any(|error| error.to_string() == text);
            assert!(is_theirs, "case {case}: {text} is not in {errors:?}");
        }
    }
}

/// The group of a case that is filtered, and the resources that are switched on.
struct FilterCase {
    declarations: Declarations,
    options: Options,
    enablement: Enablement,
}

impl FilterCase {
    /// The case with this number; none where runtime-config is refused.
    fn of(case: u64) -> Option<FilterCase> {
        let (declarations, options) = declarations_and_options(case);
        let enablement = Enablement::merge(&declarations, &options).ok()?;
        Some(FilterCase {
            declarations,
            options,
            enablement,
        })
    }

    fn group(&self) -> &Group {
        self.declarations.groups().last().unwrap()
    }

    fn question(&self) -> Value {
        let group = self.group();
        let mut resources: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
        for (name, resource) in self.declarations.resources() {
            if name.group != group.name || !self.enablement.resource(&name).on {
                continue;
            }
            let version = group.version(name.version.as_str()).unwrap();
            let entries = resources.entry(version.name.as_str()).or_default();
            let own = resource.lifecycle.at(name.version.stability());
            for sub in &resource.subresources {
                let releases = match &sub.kind {
                    None => Some(own.clone()),
                    Some(kind) => self.declarations.releases_of_kind(kind),
                };
                let sub = format!("{}/{}", resource.plural, sub.name);
                entries.insert(sub, lifecycle(releases.as_ref()));
            }
            entries.insert(resource.plural.clone(), lifecycle(Some(&own)));
        }
        let is_here = |other: &str| other == group.name;
        let versions = self.enablement.explicit_versions();
        let explicit_versions: Vec<&VersionName> = versions
            .filter(|(name, on)| *on && is_here(&name.group))
            .map(|(name, _)| &name.version)
            .collect();
        let explicit = self.enablement.explicit_resources();
        let explicit_resources: Vec<Value> = explicit
            .filter(|(name, on)| *on && is_here(&name.group))
            .map(|(name, _)| json!([name.version, name.resource]))
            .collect();
        let versions: Vec<&VersionName> = group.versions.iter().map(|it| &it.name).collect();
        json!({
            "op": "filter",
            "current": number(self.options.current()),
            "pre_release": self.options.versions.binary().pre_release(),
            "strict_in_alpha": self.options.strict_removal_in_alpha,
            "one_more_release": self.options.serve_removed_one_more_release,
            "forward": self.options.forward.emulation,
            "config_forward": self.options.forward.runtime_config,
            "group": group.name,
            "versions": versions,
            "resources": resources,
            "explicit_versions": explicit_versions,
            "explicit_resources": explicit_resources,
        })
    }
}

fn lifecycle(releases: Option<&Releases>) -> Value {
    let Some(releases) = releases else {
        return json!({"missing": true});
    };
    // Introduced at 0.0 and no information are the same; ask both ways.
    let is_stated = releases.introduced != MajorMinor::ZERO || releases.removed.is_some();
    json!({
        "introduced": is_stated.then(|| number(releases.introduced)),
        "deprecated": releases.deprecated.map(number),
        "removed": releases.removed.map(number),
    })
}

/// Proves: G93, G94, G95, G96, G97, G98, G99, G100, G101
#[test]
fn availability_equals_kubernetes() {
    let (mut filtered, mut refused) = (0, 0);
    oracle::compare(
        "availability_equals_kubernetes",
        CASES,
        |case| match FilterCase::of(case) {
            Some(case) => case.question(),
            None => json!({"op": "compare"}),
        },
        |number, answer| {
            let Some(case) = FilterCase::of(number) else {
                return;
            };
            let group = &case.group().name;
            let theirs = answer["error"].as_str();
            let errors = match resolve(&case.declarations, &case.options) {
                Ok(apis) => {
                    let kept = kept(&apis, group);
                    assert_eq!((theirs, kept), (None, answer_kept(answer)), "case {number}");
                    filtered += 1;
                    return;
                }
                Err(errors) => errors.0,
            };
            // Errors of other groups, and those about alpha, come from elsewhere.
            let of_group = |error: &&StartError| match error {
                StartError::FutureVersion { version, .. } => version.group == *group,
                StartError::FutureResource { resource, .. } => resource.group == *group,
                _ => false,
            };
            let texts: BTreeSet<String> = errors
                .iter()
                .filter(of_group)
                .map(ToString::to_string)
                .collect();
            match theirs {
                None => assert!(texts.is_empty(), "case {number}: {texts:?}"),
                Some(text) => assert!(texts.contains(text), "case {number}: {text}, {texts:?}"),
            }
            refused += 1;
        },
    );
    if filtered + refused > 0 {
        assert!(
            filtered > CASES / 2 && refused > CASES / 100,
            "{filtered} {refused}"
        );
    }
}

/// Version and name of what is served in a group.
fn kept(apis: &ServedApis, group: &str) -> BTreeSet<(String, String)> {
    let names = generated::outcome(apis).into_keys();
    names
        .filter(|name| name.group == group)
        .map(|name| (name.version.to_string(), name.resource))
        .collect()
}

fn answer_kept(answer: &Value) -> BTreeSet<(String, String)> {
    let kept = answer["kept"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pairs = kept.iter().map(|it| (text(&it[0]), text(&it[1])));
    pairs.collect()
}

/// A kind in up to six versions, without a removal in the window.
fn stored_kind(case: u64) -> (Declarations, Options, Value) {
    let random = &mut Random::of_case(case);
    let mut options = Options::new(EffectiveVersion::new(Release::parse("1.99.0").unwrap()));
    let emulation = MajorMinor::new(1, 32 + random.below(6));
    options.versions.set_emulation(emulation);
    let min_compat = match random.below(20) {
        0 => MajorMinor::ZERO,
        _ => emulation.minus_minors(random.below(4)),
    };
    options.versions.set_min_compat(min_compat);
    let mut group = Group::new(GROUP);
    for _ in 0..=random.below(6) {
        let name = *random.pick(&generated::VERSIONS);
        if group.version(name).is_none() {
            let introduced = generated::release(random);
            let earliest = introduced.max(emulation.plus_minors(1));
            let removed = random.chance(30).then(|| earliest.plus_minors(1));
            let lifecycle = Lifecycle::introduced_in(introduced)
                .deprecated_in(None)
                .removed_in(removed);
            group = group.with_version(common::things(name, lifecycle));
        }
    }
    let declarations = Declarations::new([group]).unwrap();
    let versions = &declarations.groups()[0].versions;
    if random.chance(5) {
        let version = random.pick(versions).name.clone();
        let things = GroupResource::new(GROUP, "things");
        options.storage_overrides.insert(things, version);
    }
    let names: Vec<&VersionName> = versions.iter().map(|it| &it.name).collect();
    let lifecycles: Vec<Value> = versions
        .iter()
        .map(|it| lifecycle(Some(&it.resources[0].lifecycle.at(it.name.stability()))))
        .collect();
    let question = json!({
        "op": "storage",
        "versions": names,
        "lifecycles": lifecycles,
        "current": number(emulation),
        "min_compat": number(min_compat),
        "override": options.storage_overrides.values().next(),
    });
    (declarations, options, question)
}

/// Proves: G119, G120, G121, G122, S2-20, C6
#[test]
fn storage_version_equals_kubernetes_without_a_removal_in_the_window() {
    let mut compared = 0;
    oracle::compare(
        "storage_version_equals_kubernetes_without_a_removal_in_the_window",
        CASES,
        |case| stored_kind(case).2,
        |case, answer| {
            let (declarations, options, question) = stored_kind(case);
            let apis = resolve(&declarations, &options).unwrap();
            let storage = apis.storage_version(GROUP, "things").unwrap();
            assert_eq!(
                answer["text"],
                storage.version.as_str(),
                "case {case}: {question}"
            );
            compared += 1;
        },
    );
    assert!(compared == 0 || compared == CASES);
}

/// A kind with a lifecycle, and the release at which it is judged.
fn aging_kind(case: u64) -> (GroupVersionKind, Releases, MajorMinor) {
    let random = &mut Random::of_case(case);
    let kind = GroupVersionKind::new(
        *random.pick(&generated::GROUPS),
        *random.pick(&generated::VERSIONS),
        random.pick(&generated::RESOURCES).1,
    );
    let releases = generated::lifecycle(random).at(kind.version.stability());
    let current = match random.below(20) {
        0 => MajorMinor::ZERO,
        _ => generated::release(random),
    };
    (kind, releases, current)
}

fn names(kind: &GroupVersionKind) -> Value {
    json!([kind.group, kind.version, kind.kind])
}

/// Proves: G116, G117
#[test]
fn deprecation_warning_equals_kubernetes() {
    oracle::compare(
        "deprecation_warning_equals_kubernetes",
        CASES,
        |case| {
            let (kind, releases, current) = aging_kind(case);
            json!({
                "op": "deprecation",
                "kind": names(&kind),
                "replacement": releases.replacement.as_ref().map(names),
                "lifecycle": lifecycle(Some(&releases)),
                "current": number(current),
            })
        },
        |case, answer| {
            let (kind, releases, current) = aging_kind(case);
            let ours = deprecation(&kind, &releases, current);
            let warning = ours.as_ref().map(|it| it.warning.as_str());
            assert_eq!(answer["text"].as_str(), warning, "case {case}");
            let removed = ours.and_then(|it| it.removed_release);
            let removed = removed.map(|release| release.to_string());
            assert_eq!(
                answer["removed"].as_str(),
                removed.as_deref(),
                "case {case}"
            );
        },
    );
}

/// Proves: G124
#[test]
fn storage_version_hash_equals_kubernetes() {
    oracle::compare(
        "storage_version_hash_equals_kubernetes",
        1_000,
        |case| json!({"op": "hash", "kind": names(&aging_kind(case).0)}),
        |case, answer| {
            let (kind, ..) = aging_kind(case);
            assert_eq!(answer["text"], storage_version_hash(&kind), "case {case}");
        },
    );
}
