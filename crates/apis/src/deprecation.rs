//! Deprecation: when an API is deprecated, and the warning that its clients receive.

use portunus_gates::MajorMinor;
use serde::Serialize;

use crate::lifecycle::Releases;
use crate::names::GroupVersionKind;

/// The deprecation of an API at the emulated release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deprecation {
    /// The text of the `Warning` header.
    pub warning: String,
    /// The release of the deprecation.
    pub deprecated: MajorMinor,
    /// The release of the removal, for metrics and audit annotations.
    pub removed_release: Option<MajorMinor>,
}

/// Returns the deprecation of a kind, if it is deprecated at the release `current`. At 0.0
/// the release is unknown, and everything that is ever deprecated counts as deprecated.
pub fn deprecation(
    kind: &GroupVersionKind,
    releases: &Releases,
    current: MajorMinor,
) -> Option<Deprecation> {
    let deprecated = releases.deprecated?;
    if current != MajorMinor::ZERO && deprecated > current {
        return None;
    }
    let mut warning = format!(
        "{} {} is deprecated in v{deprecated}+",
        kind.group_version(),
        kind.kind
    );
    if let Some(removed) = releases.removed {
        warning.push_str(&format!(", unavailable in v{removed}+"));
    }
    if let Some(replacement) = &releases.replacement {
        let version = replacement.group_version();
        warning.push_str(&format!("; use {version} {}", replacement.kind));
    }
    Some(Deprecation {
        warning,
        deprecated,
        removed_release: releases.removed,
    })
}
