//! Explanations and plans, as an operator reads them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use portunus_apis::testing::{self, BEFORE, STEP};
use portunus_apis::*;
use portunus_gates::{EffectiveVersion, MajorMinor, Version as Release};

fn name(version: &str, resource: &str) -> GroupVersionResource {
    GroupVersionResource::new(testing::GROUP, version, resource)
}

fn explained(emulation: MajorMinor, version: &str, resource: &str) -> Explanation {
    let options = testing::options(emulation);
    let declarations = testing::declarations().unwrap();
    explain(&declarations, &options, &name(version, resource)).unwrap()
}

fn remedies(emulation: MajorMinor, version: &str, resource: &str) -> Vec<String> {
    let explained = explained(emulation, version, resource);
    explained
        .to_change
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn explanation_of_a_removed_api_names_the_releases_that_have_it() {
    assert_eq!(
        explained(STEP, "v1beta1", "defaults").to_string(),
        "defaults.v1beta1.synthetic.portunus.dev: not served\n  \
         why:        it was removed in 1.36, and this server emulates 1.36\n  \
         lifecycle:  introduced 1.32, deprecated 1.34, removed 1.36; this server emulates 1.36\n  \
         stored as:  v1beta1\n  \
         served with: --emulated-version=1.35\n  \
         served with: KUBE_APISERVER_SERVE_REMOVED_APIS_FOR_ONE_RELEASE=true in the environment\n"
    );
}

#[test]
fn explanation_names_the_smallest_changes_that_serve_an_api() {
    let key = |version: &str, resource: &str| {
        format!("synthetic.portunus.dev/{version}/{resource}=true in --runtime-config")
    };
    // Switched off only.
    assert_eq!(
        remedies(BEFORE, "v1beta1", "graduates"),
        [key("v1beta1", "graduates")]
    );
    // Too new only.
    assert_eq!(
        remedies(BEFORE, "v1", "popular"),
        [
            "--emulated-version=1.36",
            "--emulation-forward-compatible=true"
        ]
    );
    // Off and too new, and off and removed: two changes together.
    let alpha = key("v1alpha1", "alphas");
    assert_eq!(
        remedies(BEFORE, "v1alpha1", "alphas"),
        [
            format!("--emulated-version=1.36 and {alpha}"),
            format!("--runtime-config-emulation-forward-compatible=true and {alpha}"),
        ]
    );
    let optional = key("v1beta1", "optionals");
    assert_eq!(
        remedies(STEP, "v1beta1", "optionals"),
        [
            format!("--emulated-version=1.35 and {optional}"),
            format!(
                "KUBE_APISERVER_SERVE_REMOVED_APIS_FOR_ONE_RELEASE=true in the environment and \
                 {optional}"
            ),
        ]
    );
}

#[test]
fn explanation_of_a_served_api_names_what_switched_it_on_and_how_to_switch_it_off() {
    assert_eq!(
        explained(STEP, "v1beta1", "movers").to_string(),
        "movers.v1beta1.synthetic.portunus.dev: served\n  \
         why:        it is switched on by the default of its declaration, and the emulated \
         release has it\n  \
         lifecycle:  introduced 1.33, deprecated 1.36, removed 1.38; this server emulates 1.36\n  \
         deprecated: synthetic.portunus.dev/v1beta1 Mover is deprecated in v1.36+, unavailable \
         in v1.38+; use synthetic.portunus.dev/v1 Mover\n  \
         stored as:  v1\n  \
         not served with: synthetic.portunus.dev/v1beta1/movers=false in --runtime-config\n"
    );
    assert!(explained(STEP, "v1", "movers").preferred);
}

#[test]
fn explanation_of_an_api_of_a_newer_release_names_the_binary() {
    let declarations = group([things("v1", Lifecycle::since("1.40"))]);
    let name = GroupVersionResource::new(GROUP, "v1", "things");
    let explained = explain(&declarations, &binary("1.37.0"), &name).unwrap();
    assert_eq!(explained.to_change.len(), 1);
    assert_eq!(explained.to_change[0].to_string(), "binary 1.40");
}

#[test]
fn explanation_of_an_unknown_api_names_the_versions_that_have_it() {
    let declarations = testing::declarations().unwrap();
    let error = explain(
        &declarations,
        &testing::options(STEP),
        &name("v2", "movers"),
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "this binary does not know movers.v2.synthetic.portunus.dev; it knows \
         movers.v1.synthetic.portunus.dev, movers.v1beta1.synthetic.portunus.dev"
    );
}

#[test]
fn message_of_a_404_says_why_and_what_would_serve_the_api() {
    let declarations = testing::declarations().unwrap();
    let options = testing::options(STEP);
    let message = |version: &str, resource: &str| {
        not_served_message(&declarations, &options, &name(version, resource))
    };
    assert_eq!(
        message("v1beta1", "graduates").unwrap(),
        "graduates.v1beta1.synthetic.portunus.dev is known to this server but not served: it is \
         switched off by the default of its stability. It is served with \
         synthetic.portunus.dev/v1beta1/graduates=true in --runtime-config"
    );
    assert_eq!(message("v1", "movers"), None);
    assert_eq!(message("v9", "movers"), None);
}

fn planned(before: &Options, after: &Options) -> Plan {
    let declarations = testing::declarations().unwrap();
    let side = |options| Side {
        declarations: &declarations,
        options,
    };
    plan(side(before), side(after)).unwrap()
}

/// Proves: S2-21, S2-23
#[test]
fn plan_of_a_new_emulation_version_reads_as_additions_removals_and_changes() {
    let plan = planned(&testing::options(BEFORE), &testing::options(STEP));
    assert!(!plan.is_blocked());
    let text = plan.to_string();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("/status"))
        .collect();
    assert_eq!(
        lines,
        [
            "- defaults.v1beta1.synthetic.portunus.dev: it was removed in 1.36, and this server \
             emulates 1.36",
            "~ movers.v1beta1.synthetic.portunus.dev: synthetic.portunus.dev/v1beta1 Mover is \
             deprecated in v1.36+, unavailable in v1.38+; use synthetic.portunus.dev/v1 Mover",
            "~ popular.v1beta1.synthetic.portunus.dev: synthetic.portunus.dev/v1beta1 Popular is \
             deprecated in v1.36+, unavailable in v1.38+; use synthetic.portunus.dev/v1 Popular",
            "+ graduates.v1.synthetic.portunus.dev: switched on by the default of its stability",
            "+ popular.v1.synthetic.portunus.dev: switched on by the default of its stability",
            "~ movers.synthetic.portunus.dev: stored as v1beta1 -> v1",
        ]
    );
    let back = planned(&testing::options(STEP), &testing::options(BEFORE));
    assert_eq!(back.notable().count(), plan.notable().count());
    let same = planned(&testing::options(STEP), &testing::options(STEP));
    assert_eq!(same.to_string(), "nothing changes\n");
}

#[test]
fn plan_that_does_not_start_is_blocked_by_the_error_of_the_start() {
    let before = testing::options(BEFORE);
    let after = before.after([&Change::set_key(
        format!("{}/v1alpha1", testing::GROUP),
        true,
    )]);
    let plan = planned(&before, &after);
    assert!(plan.is_blocked());
    assert!(plan.rows.is_empty());
    let text = plan.to_string();
    assert!(text.starts_with("blocked: cannot enable version"), "{text}");
}

#[test]
fn plan_of_another_binary_compares_what_both_know() {
    let old = group([things("v1beta1", Lifecycle::since("1.35").kept()).served_by_default(true)]);
    let new = group([
        things("v1beta1", Lifecycle::since("1.35").kept()).served_by_default(true),
        things("v1", Lifecycle::since("1.37")),
    ]);
    let before = binary("1.36.0");
    let versions = EffectiveVersion::new(Release::parse("1.37.0").unwrap());
    let after = before.after([&Change::Binary(versions)]);
    let side = |declarations, options| Side {
        declarations,
        options,
    };
    let plan = plan(side(&old, &before), side(&new, &after)).unwrap();
    assert_eq!(
        plan.to_string(),
        "+ things.v1.example.io: switched on by the default of its stability\n\
         ~ group \"example.io\": preferred version v1beta1 -> v1\n"
    );
}
