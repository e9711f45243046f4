//! A synthetic group with a fixed, permanent lifecycle, for tests of emulation.
//!
//! Tests of emulation on real APIs break whenever a real API is removed. This group never
//! changes: every step of a lifecycle happens in the same release for ever. It exists only
//! with the feature `testing`, which no release binary has.
//!
//! | resource | versions | step |
//! | --- | --- | --- |
//! | `alphas` | v1alpha1 since 1.36 | an alpha is introduced |
//! | `graduates` | v1beta1 since 1.34 off by default, v1 since 1.36 | a beta becomes GA |
//! | `popular` | v1beta1 since 1.34 on by default, v1 since 1.36 | a beta that was on becomes GA |
//! | `optionals` | v1beta1 since 1.32, off by default, removed in 1.36 | a beta that was off is removed |
//! | `defaults` | v1beta1 since 1.32, on by default, removed in 1.36 | a beta that was on is removed |
//! | `movers` | v1beta1 since 1.33, v1 since 1.35 | the storage version changes in 1.36 |
//! | `stables` | v1 since 1.30 | nothing happens |

use portunus_gates::{EffectiveVersion, MajorMinor, Version as Release};

use crate::check::DeclarationErrors;
use crate::declare::{Declarations, Group, Resource, Subresource, Version};
use crate::lifecycle::Lifecycle;
use crate::names::GroupVersionKind;
use crate::options::Options;

/// The synthetic group.
pub const GROUP: &str = "synthetic.portunus.dev";
/// The release in which every step happens, except that a storage version changes in it that
/// was introduced one release before.
pub const STEP: MajorMinor = MajorMinor::literal("1.36");
/// The release before.
pub const BEFORE: MajorMinor = MajorMinor::literal("1.35");

/// Returns the declaration of the synthetic group.
pub fn group() -> Group {
    let resource = |plural: &str, kind: &str, lifecycle: Lifecycle| {
        Resource::new(plural, kind, lifecycle).with_subresource(Subresource::new("status"))
    };
    let replaced = |since: &str, kind: &str| {
        let since = MajorMinor::literal(since);
        Lifecycle::introduced_in(since)
            .deprecated_in(Some(STEP))
            .removed_in(Some(STEP.plus_minors(2)))
            .replaced_by(GroupVersionKind::new(GROUP, "v1", kind))
    };
    let on = |resource: Resource| resource.served_by_default(true);
    Group::new(GROUP)
        .with_version(Version::new("v1alpha1").with_resource(resource(
            "alphas",
            "Alpha",
            Lifecycle::since("1.36"),
        )))
        .with_version(
            Version::new("v1beta1")
                .with_resource(resource(
                    "graduates",
                    "Graduate",
                    replaced("1.34", "Graduate"),
                ))
                .with_resource(on(resource(
                    "popular",
                    "Popular",
                    replaced("1.34", "Popular"),
                )))
                .with_resource(resource(
                    "optionals",
                    "Optional",
                    Lifecycle::since("1.32").deprecated("1.34").removed("1.36"),
                ))
                .with_resource(on(resource(
                    "defaults",
                    "Default",
                    Lifecycle::since("1.32").deprecated("1.34").removed("1.36"),
                )))
                .with_resource(on(resource("movers", "Mover", replaced("1.33", "Mover")))),
        )
        .with_version(
            Version::new("v1")
                .with_resource(resource("graduates", "Graduate", Lifecycle::since("1.36")))
                .with_resource(resource("popular", "Popular", Lifecycle::since("1.36")))
                .with_resource(resource("movers", "Mover", Lifecycle::since("1.35")))
                .with_resource(resource("stables", "Stable", Lifecycle::since("1.30"))),
        )
}

/// Returns the declarations of the synthetic group alone.
pub fn declarations() -> Result<Declarations, DeclarationErrors> {
    Declarations::new([group()])
}

/// Returns the options of a process of release [`STEP`] that emulates a release. The lowest
/// emulation is three minors back.
pub fn options(emulation: MajorMinor) -> Options {
    let floor = STEP.minus_minors(portunus_gates::EMULATED_MINORS_MAX);
    let binary: Release = STEP.into();
    let mut versions = EffectiveVersion::new(binary).with_usual_floors(floor);
    versions.set_emulation(emulation);
    Options::new(versions)
}
