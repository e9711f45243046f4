//! Properties of generated lifecycles and flags.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::generated::{self, Random, outcome};
use portunus_apis::*;

/// Enough for every combination of two steps of a lifecycle and one flag, and fast.
const CASES: u64 = 20_000;
/// How many changes a plan property must have seen that start and that do not.
const STARTED_MIN: usize = 10_000;
const BLOCKED_MIN: usize = 100;

/// Applies the rows of a plan to what was served before.
fn applied(
    plan: &Plan,
    before: BTreeMap<GroupVersionResource, Option<String>>,
) -> BTreeMap<GroupVersionResource, Option<String>> {
    let mut applied = before;
    for row in plan.notable() {
        match &row.after {
            ApiState::Served { warning } => drop(applied.insert(row.name.clone(), warning.clone())),
            ApiState::NotServed | ApiState::Unknown => drop(applied.remove(&row.name)),
        }
    }
    applied
}

fn storage(apis: &ServedApis) -> BTreeMap<GroupResource, VersionName> {
    let versions = apis.storage_versions();
    versions
        .map(|(name, storage)| (name.clone(), storage.version.clone()))
        .collect()
}

fn preferred(apis: &ServedApis) -> BTreeMap<String, VersionName> {
    let groups = discovery::group_list(apis).groups.into_iter();
    let core = discovery::core_versions(apis, Vec::new()).versions;
    groups
        .map(|group| (group.name, group.preferred_version.unwrap().version))
        .chain(core.first().map(|version| (String::new(), version.clone())))
        .map(|(group, version)| (group, VersionName::new(version)))
        .collect()
}

/// Applies changed rows to a map.
fn replaced<K: Ord + Clone>(
    mut map: BTreeMap<K, VersionName>,
    rows: impl Iterator<Item = (K, Option<VersionName>)>,
) -> BTreeMap<K, VersionName> {
    for (name, version) in rows {
        match version {
            Some(version) => drop(map.insert(name, version)),
            None => drop(map.remove(&name)),
        }
    }
    map
}

/// Every change that a plan names, applied to the state before, gives what a process with the
/// changed flags or binary then serves, stores, prefers and warns about; and a plan is blocked
/// exactly if that process does not start.
#[test]
fn plan_equals_the_outcome_on_generated_lifecycles_and_changes() {
    let (mut started, mut blocked) = (0, 0);
    for case in 0..CASES {
        let random = &mut Random::of_case(case);
        let declarations = generated::declarations(random);
        let options = generated::options(random, &declarations);
        let Ok(before) = resolve(&declarations, &options) else {
            continue;
        };
        // A change of flags, or another binary with other declarations.
        let (new_declarations, new_options) = match random.chance(80) {
            true => {
                let changes = generated::changes(random, &declarations);
                (declarations.clone(), options.after(&changes))
            }
            false => {
                let declarations = generated::declarations(random);
                let options = generated::options(random, &declarations);
                (declarations, options)
            }
        };
        let side = |declarations, options| Side {
            declarations,
            options,
        };
        let plan = plan(
            side(&declarations, &options),
            side(&new_declarations, &new_options),
        )
        .unwrap();
        let Ok(after) = resolve(&new_declarations, &new_options) else {
            assert!(plan.is_blocked(), "case {case}");
            blocked += 1;
            continue;
        };
        started += 1;
        assert!(!plan.is_blocked(), "case {case}");
        assert_eq!(
            applied(&plan, outcome(&before)),
            outcome(&after),
            "case {case}"
        );
        let rows = plan.notable_storage();
        let rows = rows.map(|row| (row.name.clone(), row.after.clone()));
        assert_eq!(
            replaced(storage(&before), rows),
            storage(&after),
            "case {case}"
        );
        let rows = plan.notable_preferred();
        let rows = rows.map(|row| (row.group.clone(), row.after.clone()));
        assert_eq!(
            replaced(preferred(&before), rows),
            preferred(&after),
            "case {case}"
        );
        let warns = |warning: &str| after.warnings().iter().any(|it| it.to_string() == warning);
        assert!(plan.new_warnings.iter().all(|it| warns(it)), "case {case}");
    }
    assert!(started >= STARTED_MIN, "only {started} changes started");
    assert!(
        blocked >= BLOCKED_MIN,
        "only {blocked} changes were blocked"
    );
}

/// Explanations agree with what is served, and each remedy works.
#[test]
fn explanation_agrees_with_the_outcome_and_its_remedies_work() {
    let (mut explained, mut remedied) = (0, 0);
    for case in 0..CASES / 20 {
        let random = &mut Random::of_case(case);
        let declarations = generated::declarations(random);
        let options = generated::options(random, &declarations);
        let Ok(apis) = resolve(&declarations, &options) else {
            continue;
        };
        let names: Vec<_> = declarations.resources().map(|(name, _)| name).collect();
        for name in names {
            let is_served = |apis: &ServedApis| outcome(apis).contains_key(&name);
            let explanation = explain(&declarations, &options, &name).unwrap();
            assert_eq!(explanation.served, is_served(&apis), "case {case}, {name}");
            explained += 1;
            for remedy in &explanation.to_change {
                if matches!(remedy.0[..], [Change::Binary(_)]) {
                    continue;
                }
                let after = resolve(&declarations, &options.after(&remedy.0)).unwrap();
                let text = format!("case {case}, {name}: {remedy}");
                assert_ne!(is_served(&after), explanation.served, "{text}");
                remedied += 1;
            }
        }
    }
    assert!(
        explained > 1_000 && remedied > 1_000,
        "{explained} {remedied}"
    );
}

/// Proves: G113, G114
#[test]
fn discovery_and_lookup_agree_with_what_is_served() {
    for case in 0..CASES / 10 {
        let random = &mut Random::of_case(case);
        let declarations = generated::declarations(random);
        let Ok(apis) = resolve(&declarations, &generated::options(random, &declarations)) else {
            continue;
        };
        for (name, _) in declarations.resources() {
            let lookup = apis.lookup(&name.group, name.version.as_str(), &name.resource);
            let is_served = matches!(lookup, Lookup::Served(_));
            let list = discovery::resource_list(&apis, &name.group, name.version.as_str());
            let is_listed = list.is_some_and(|list| {
                let mut resources = list.resources.iter();
                resources.any(|resource| resource.name == name.resource)
            });
            assert_eq!(is_listed, is_served, "case {case}, {name}");
            assert!(lookup != Lookup::Unknown, "case {case}, {name}");
        }
        for group in apis.groups() {
            let is_sorted = group
                .versions
                .windows(2)
                .all(|pair| pair[0].name.version > pair[1].name.version);
            assert!(is_sorted, "case {case}, {group:?}");
            assert!(group.versions.iter().all(|it| !it.resources.is_empty()));
        }
    }
}

/// Proves: S2-20, S2-A6
#[test]
fn storage_version_of_a_served_resource_exists_at_emulation_or_is_reported() {
    let mut checked = 0;
    for case in 0..CASES {
        let random = &mut Random::of_case(case);
        let declarations = generated::declarations(random);
        let options = generated::options(random, &declarations);
        let Ok(apis) = resolve(&declarations, &options) else {
            continue;
        };
        for served in apis.resources() {
            let stored = GroupVersionKind::new(
                &*served.name.group,
                served.storage.version.clone(),
                &*served.resource.kind,
            );
            let releases = declarations.releases_of_kind(&stored).unwrap();
            let is_reported = apis.warnings().iter().any(|warning| {
                matches!(warning, StartWarning::StorageUnreadable { resource, .. }
                    if *resource == served.name.group_resource())
            });
            let is_readable = served.storage.unreadable_in.is_empty();
            assert_eq!(is_readable, !is_reported, "case {case}, {}", served.name);
            // A version that the emulated release has is preferred to one that it removed.
            let exists_at_emulation = releases.exists_in(options.current());
            let has_any = declarations.resources().any(|(name, resource)| {
                name.group_resource() == served.name.group_resource()
                    && resource
                        .lifecycle
                        .at(name.version.stability())
                        .exists_in(options.current())
            });
            assert!(
                exists_at_emulation || !has_any,
                "case {case}, {}: {:?}",
                served.name,
                served.storage
            );
            checked += 1;
        }
    }
    assert!(checked > 10_000, "only {checked} were checked");
}
