//! The grid of emulation tests on the synthetic group: each row is a step of a lifecycle in
//! release 1.36, and what a 1.36 binary does when it emulates 1.35 and 1.36.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use portunus_apis::testing::{BEFORE, GROUP, STEP, declarations, options};
use portunus_apis::*;
use portunus_gates::MajorMinor;

fn apis(emulation: MajorMinor, runtime_config: &str) -> ServedApis {
    let options = common::with_config(options(emulation), runtime_config);
    resolve(&declarations().unwrap(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The versions in which a resource is served, the most preferred first.
fn versions(resource: &str, emulation: MajorMinor, runtime_config: &str) -> Vec<String> {
    let apis = apis(emulation, runtime_config);
    let served = apis.resources().filter(|it| it.name.resource == resource);
    served.map(|it| it.name.version.to_string()).collect()
}

const NOTHING: [&str; 0] = [];

/// Proves: S2-33, C10
#[test]
fn new_alpha_api_is_absent_when_emulating_before_and_opt_in_after() {
    assert_eq!(versions("alphas", BEFORE, ""), NOTHING);
    assert_eq!(versions("alphas", BEFORE, "api/alpha=true"), NOTHING);
    let key = format!("{GROUP}/v1alpha1=true");
    let named = common::with_config(options(BEFORE), &key);
    let refused = resolve(&declarations().unwrap(), &named).unwrap_err();
    assert!(matches!(refused.0[0], StartError::FutureVersion { .. }));
    assert_eq!(versions("alphas", STEP, ""), NOTHING);
    assert_eq!(versions("alphas", STEP, &key), ["v1alpha1"]);
}

/// Proves: S2-34, S2-A10, C10
#[test]
fn beta_api_that_becomes_ga_has_only_its_beta_when_emulating_before() {
    let beta = format!("{GROUP}/v1beta1/graduates=true");
    assert_eq!(versions("graduates", BEFORE, ""), NOTHING);
    assert_eq!(versions("graduates", BEFORE, &beta), ["v1beta1"]);
    assert_eq!(versions("graduates", STEP, ""), ["v1"]);
    assert_eq!(versions("graduates", STEP, &beta), ["v1", "v1beta1"]);
    // The beta that was on by default.
    assert_eq!(versions("popular", BEFORE, ""), ["v1beta1"]);
    assert_eq!(versions("popular", STEP, ""), ["v1", "v1beta1"]);
    let mut forward = options(BEFORE);
    forward.forward.emulation = true;
    let apis = resolve(&declarations().unwrap(), &forward).unwrap();
    assert!(matches!(
        apis.lookup(GROUP, "v1", "popular"),
        Lookup::Served(_)
    ));
    // The GA version of a beta that is off stays off.
    assert!(matches!(
        apis.lookup(GROUP, "v1", "graduates"),
        Lookup::NotServed(_)
    ));
}

/// Proves: S2-35, C10
#[test]
fn removed_beta_api_that_was_off_is_opt_in_when_emulating_before_and_absent_after() {
    let key = format!("{GROUP}/v1beta1/optionals=true");
    assert_eq!(versions("optionals", BEFORE, ""), NOTHING);
    assert_eq!(versions("optionals", BEFORE, &key), ["v1beta1"]);
    assert_eq!(versions("optionals", STEP, ""), NOTHING);
    assert_eq!(versions("optionals", STEP, &key), NOTHING);
    let warnings = apis(STEP, &key).warnings().to_vec();
    assert!(matches!(
        warnings[..],
        [StartWarning::EnabledButRemoved { .. }]
    ));
}

/// Proves: S2-36, C10
#[test]
fn removed_beta_api_that_was_on_is_opt_out_when_emulating_before_and_absent_after() {
    let off = format!("{GROUP}/v1beta1/defaults=false");
    assert_eq!(versions("defaults", BEFORE, ""), ["v1beta1"]);
    assert_eq!(versions("defaults", BEFORE, &off), NOTHING);
    assert_eq!(versions("defaults", STEP, ""), NOTHING);
}

/// Proves: S2-37, C10
#[test]
fn changed_storage_version_is_the_old_one_when_emulating_before() {
    let stored = |emulation, min_compat: Option<&str>| {
        let mut options = options(emulation);
        if let Some(min_compat) = min_compat {
            options.versions.set_min_compat(common::v(min_compat));
        }
        let apis = resolve(&declarations().unwrap(), &options).unwrap();
        let storage = apis.storage_version(GROUP, "movers").unwrap();
        storage.version.to_string()
    };
    assert_eq!(stored(BEFORE, None), "v1beta1");
    assert_eq!(stored(STEP, None), "v1");
    // The minimum compatibility version alone decides, whatever is emulated.
    assert_eq!(stored(STEP, Some("1.34")), "v1beta1");
    assert_eq!(stored(BEFORE, Some("1.35")), "v1");
}

/// Proves: S2-21, S2-23
#[test]
fn emulating_before_and_coming_back_restores_every_api() {
    let names = |emulation| common::served(&apis(emulation, ""));
    let before = names(BEFORE);
    let after = names(STEP);
    let only = |left: &[String], right: &[String]| {
        let is_resource = |name: &&String| !name.ends_with("/status") && !right.contains(name);
        let only = left.iter().filter(is_resource);
        only.map(|name| name.strip_prefix(GROUP).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(only(&before, &after), ["/v1beta1/defaults"]);
    assert_eq!(only(&after, &before), ["/v1/graduates", "/v1/popular"]);
    for release in ["1.33", "1.34", "1.35", "1.36"] {
        assert!(names(common::v(release)).contains(&format!("{GROUP}/v1/stables")));
    }
    assert!(resolve(&declarations().unwrap(), &options(common::v("1.32"))).is_err());
}
