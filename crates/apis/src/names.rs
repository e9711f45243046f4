//! Names of API versions, kinds and resources, and the order of API versions.
//!
//! `v1beta2` is the name of an API version, not a release: releases are [`MajorMinor`] and
//! compare in the gates crate. API versions compare by stability first, see
//! [`compare_kube_aware`].
//!
//! [`MajorMinor`]: portunus_gates::MajorMinor

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

/// The stability that the name of an API version states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stability {
    /// A name that states none, such as `internal`.
    Unstated,
    /// `v1alpha1`
    Alpha,
    /// `v1beta1`
    Beta,
    /// `v1`
    Ga,
}

/// The name of an API version, such as `v1` or `v1beta2`.
///
/// The order of this type is the one of [`compare_kube_aware`] and, between names that are
/// equal there (`v1` and `v01`), the order of their texts. A greater name is preferred.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct VersionName(String);

impl VersionName {
    /// Creates a name; [`Declarations::new`](crate::Declarations::new) checks its form.
    pub fn new(name: impl Into<String>) -> VersionName {
        VersionName(name.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the stability that the name states.
    pub fn stability(&self) -> Stability {
        parse(&self.0).map_or(Stability::Unstated, |parsed| parsed.stability)
    }

    /// Returns whether the name contains `alpha`: such a version is never chosen as a storage
    /// version while there is another one.
    pub(crate) fn contains_alpha(&self) -> bool {
        self.0.contains("alpha")
    }
}

impl From<&str> for VersionName {
    fn from(name: &str) -> VersionName {
        VersionName::new(name)
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialOrd for VersionName {
    fn partial_cmp(&self, other: &VersionName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VersionName {
    fn cmp(&self, other: &VersionName) -> Ordering {
        compare_kube_aware(&self.0, &other.0).then_with(|| self.0.cmp(&other.0))
    }
}

/// Compares the names of two API versions: GA above beta above alpha, then the larger major
/// number, then the larger minor number. A name of another form is below all of these, and
/// among such names the alphabetically first one is the greatest.
pub fn compare_kube_aware(left: &str, right: &str) -> Ordering {
    if left == right {
        return Ordering::Equal;
    }
    match (parse(left), parse(right)) {
        (None, None) => right.cmp(left),
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(left), Some(right)) => left.cmp(&right),
    }
}

/// A parsed name; the order of the fields is the order of comparison.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Parsed {
    stability: Stability,
    major: i64,
    minor: i64,
}

/// Parses `v<number>` and `v<number>(alpha|beta)<number>`.
fn parse(name: &str) -> Option<Parsed> {
    let rest = name.strip_prefix('v')?;
    let (major, rest) = number(rest)?;
    if rest.is_empty() {
        return Some(Parsed {
            stability: Stability::Ga,
            major,
            minor: 0,
        });
    }
    let (stability, rest) = match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        (Some(rest), _) => (Stability::Alpha, rest),
        (_, Some(rest)) => (Stability::Beta, rest),
        (None, None) => return None,
    };
    let (minor, rest) = number(rest)?;
    rest.is_empty().then_some(Parsed {
        stability,
        major,
        minor,
    })
}

/// Splits off the leading digits; a number above the range of `i64` is none.
fn number(text: &str) -> Option<(i64, &str)> {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

/// A group and a version; displayed as in the `apiVersion` of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: VersionName,
}

impl GroupVersion {
    /// Creates the version `version` of `group`.
    pub fn new(group: impl Into<String>, version: impl Into<VersionName>) -> GroupVersion {
        GroupVersion {
            group: group.into(),
            version: version.into(),
        }
    }

    /// Returns a resource of this version.
    pub fn resource(&self, resource: impl Into<String>) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A group and a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GroupVersionKind {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: VersionName,
    /// The kind, such as `Deployment`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Creates the name of a kind.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<VersionName>,
        kind: impl Into<String>,
    ) -> GroupVersionKind {
        GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }
}

/// A resource of one version, by its plural name, perhaps with a subresource (`pods/status`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GroupVersionResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: VersionName,
    /// The plural name.
    pub resource: String,
}

impl GroupVersionResource {
    /// Creates the name of a resource.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<VersionName>,
        resource: impl Into<String>,
    ) -> GroupVersionResource {
        GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }

    /// Returns the resource without its version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.clone(), self.resource.clone())
    }

    /// Formats the name as `resource.version.group`, the form of the command line.
    pub fn dotted(&self) -> String {
        format!("{}.{}.{}", self.resource, self.version, self.group)
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}, Resource={}",
            self.group, self.version, self.resource
        )
    }
}

/// A resource independent of its version; displayed as `resource.group`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The plural name.
    pub resource: String,
}

impl GroupResource {
    /// Creates the name of a resource.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> GroupResource {
        GroupResource {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: G112
    #[test]
    fn versions_sort_by_stability_then_numbers_then_other_names() {
        let mut names = [
            "v1alpha1",
            "foo10",
            "v10",
            "v1",
            "v3beta1",
            "v11alpha2",
            "v2",
            "v11beta2",
            "foo1",
            "v1beta",
            "v12alpha1",
            "v10beta3",
        ]
        .map(VersionName::from);
        names.sort_by(|left, right| right.cmp(left));
        assert_eq!(
            names.map(|name| name.to_string()),
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "v1alpha1",
                "foo1",
                "foo10",
                "v1beta",
            ]
        );
    }

    /// Proves: G112
    #[test]
    fn number_above_the_range_makes_a_name_unstated() {
        let huge = "v99999999999999999999";
        assert_eq!(VersionName::from(huge).stability(), Stability::Unstated);
        assert_eq!(compare_kube_aware(huge, "v1alpha1"), Ordering::Less);
        assert_eq!(compare_kube_aware("v01", "v1"), Ordering::Equal);
    }
}
