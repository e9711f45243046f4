//! The rules that a declaration must obey.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::declare::{Group, Resource, Version};
use crate::names::{GroupVersion, GroupVersionKind};

/// The most bytes of a name of a version or resource, as in DNS labels.
const LABEL_BYTES_MAX: usize = 63;

/// A declaration that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DeclarationError {
    /// A name of the wrong form.
    #[error("{what} {name:?} of {place} is malformed: it must be {rule}")]
    Malformed {
        what: &'static str,
        name: String,
        place: String,
        rule: &'static str,
    },
    /// A name that appears twice.
    #[error("{what} {name:?} is declared twice in {place}")]
    Duplicate {
        what: &'static str,
        name: String,
        place: String,
    },
    /// A lifecycle whose steps are out of order.
    #[error(
        "the lifecycle of {name} is out of order: it is introduced, then deprecated, then removed"
    )]
    Order { name: String },
    /// A resource that changes its kind or scope between versions.
    #[error("{name} has another {what} in another version: objects could not be converted")]
    Inconsistent { name: String, what: &'static str },
}

/// Every rule that declarations break.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct DeclarationErrors(pub Vec<DeclarationError>);

/// Checks every rule.
pub(crate) fn check(groups: &[Group]) -> Result<(), DeclarationErrors> {
    let mut errors = Vec::new();
    duplicates(
        &mut errors,
        "group",
        "the declarations",
        groups.iter().map(|group| group.name.as_str()),
    );
    for group in groups {
        check_group(&mut errors, group);
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(DeclarationErrors(errors))
    }
}

fn check_group(errors: &mut Vec<DeclarationError>, group: &Group) {
    let place = || format!("group {:?}", group.name);
    let is_core = group.name.is_empty();
    if !is_core && (group.name == "api" || !group.name.split('.').all(is_label)) {
        errors.push(DeclarationError::Malformed {
            what: "name",
            name: group.name.clone(),
            place: place(),
            rule: "a DNS name in lower case other than `api`",
        });
    }
    duplicates(
        errors,
        "version",
        &place(),
        group.versions.iter().map(|version| version.name.as_str()),
    );
    for version in &group.versions {
        check_version(errors, group, version);
    }
    check_consistency(errors, group);
}

fn check_version(errors: &mut Vec<DeclarationError>, group: &Group, version: &Version) {
    let place = GroupVersion::new(group.name.clone(), version.name.clone()).to_string();
    if !is_label(version.name.as_str()) {
        errors.push(DeclarationError::Malformed {
            what: "version",
            name: version.name.to_string(),
            place: format!("group {:?}", group.name),
            rule: "a DNS label in lower case",
        });
    }
    duplicates(
        errors,
        "resource",
        &place,
        version
            .resources
            .iter()
            .map(|resource| resource.plural.as_str()),
    );
    duplicates(
        errors,
        "kind",
        &place,
        version
            .resources
            .iter()
            .map(|resource| resource.kind.as_str()),
    );
    for resource in &version.resources {
        check_resource(errors, &place, version, resource);
    }
}

fn check_resource(
    errors: &mut Vec<DeclarationError>,
    place: &str,
    version: &Version,
    resource: &Resource,
) {
    let mut malformed = |what, name: &str, rule| {
        errors.push(DeclarationError::Malformed {
            what,
            name: name.to_owned(),
            place: place.to_owned(),
            rule,
        });
    };
    let label = "a DNS label in lower case";
    let names = [&resource.plural, &resource.singular].into_iter();
    let subresources = resource.subresources.iter().map(|sub| &sub.name);
    for name in names.chain(&resource.short_names).chain(subresources) {
        if !is_label(name) {
            malformed("name", name, label);
        }
    }
    if !is_kind(&resource.kind) {
        malformed(
            "kind",
            &resource.kind,
            "letters and digits after a capital letter",
        );
    }
    let releases = resource.lifecycle.at(version.name.stability());
    if let Some(replacement) = &releases.replacement
        && let Some(rule) = replacement_rule(replacement)
    {
        malformed("replacement", &format!("{replacement:?}"), rule);
    }
    let steps = [
        Some(releases.introduced),
        releases.deprecated,
        releases.removed,
    ];
    let steps: Vec<_> = steps.into_iter().flatten().collect();
    let is_never_there = releases.removed == Some(releases.introduced);
    if !steps.is_sorted() || is_never_there {
        errors.push(DeclarationError::Order {
            name: format!("{}.{place}", resource.plural),
        });
    }
    duplicates(
        errors,
        "subresource",
        &format!("{}.{place}", resource.plural),
        resource.subresources.iter().map(|sub| sub.name.as_str()),
    );
}

/// Objects of one resource are converted between its versions, so kind and scope must not
/// differ.
fn check_consistency(errors: &mut Vec<DeclarationError>, group: &Group) {
    let all = || group.versions.iter().flat_map(|version| &version.resources);
    for resource in all() {
        let mut others = all().take_while(|other| !std::ptr::eq(*other, resource));
        let Some(first) = others.find(|other| other.plural == resource.plural) else {
            continue;
        };
        let name = || format!("{}.{}", resource.plural, group.name);
        for (what, differs) in [
            ("kind", first.kind != resource.kind),
            ("scope", first.namespaced != resource.namespaced),
        ] {
            if differs {
                errors.push(DeclarationError::Inconsistent { name: name(), what });
            }
        }
    }
}

fn duplicates<'a>(
    errors: &mut Vec<DeclarationError>,
    what: &'static str,
    place: &str,
    names: impl Iterator<Item = &'a str>,
) {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            errors.push(DeclarationError::Duplicate {
                what,
                name: name.to_owned(),
                place: place.to_owned(),
            });
        }
    }
}

/// Returns the rule that the name of a replacement breaks.
fn replacement_rule(kind: &GroupVersionKind) -> Option<&'static str> {
    let version = kind.version.as_str();
    if kind.group.chars().any(char::is_uppercase) {
        Some("in a group in lower case")
    } else if !version.starts_with('v') || version.chars().any(char::is_uppercase) {
        Some("in a version that starts with `v` and is in lower case")
    } else if !kind.kind.starts_with(char::is_uppercase) {
        Some("a kind that starts with a capital letter")
    } else {
        None
    }
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= LABEL_BYTES_MAX
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_kind(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Declarations, Lifecycle, Subresource};

    fn things(lifecycle: Lifecycle) -> Resource {
        Resource::new("things", "Thing", lifecycle)
    }

    fn group(resource: Resource) -> Group {
        Group::new("example.io").with_version(Version::new("v1").with_resource(resource))
    }

    fn problem(group: Group) -> String {
        Declarations::new([group]).unwrap_err().to_string()
    }

    /// Proves: G90, G91
    #[test]
    fn replacement_with_a_malformed_name_is_refused() {
        let replaced = |group: &str, version: &str, kind: &str| {
            let replacement = GroupVersionKind::new(group, version, kind);
            things(Lifecycle::since("1.30").replaced_by(replacement))
        };
        assert!(Declarations::new([group(replaced("apps", "v1", "Thing"))]).is_ok());
        assert!(Declarations::new([group(replaced("", "v1", "Thing"))]).is_ok());
        for (group_name, version, kind, expected) in [
            ("Apps", "v1", "Thing", "in a group in lower case"),
            ("apps", "1", "Thing", "starts with `v`"),
            ("apps", "v1Beta1", "Thing", "in lower case"),
            ("apps", "v1", "thing", "capital letter"),
        ] {
            let found = problem(group(replaced(group_name, version, kind)));
            assert!(found.contains(expected), "{found}");
        }
    }

    /// Proves: G90
    #[test]
    fn lifecycle_out_of_order_is_refused() {
        for lifecycle in [
            Lifecycle::since("1.30").deprecated("1.29"),
            Lifecycle::since("1.30").removed("1.30"),
            Lifecycle::since("1.30").deprecated("1.32").removed("1.31"),
        ] {
            assert!(problem(group(things(lifecycle))).contains("out of order"));
        }
    }

    #[test]
    fn malformed_and_duplicate_names_are_refused() {
        let lifecycle = Lifecycle::always;
        let twice = group(things(lifecycle())).with_version(Version::new("v1"));
        assert!(problem(twice).contains("version \"v1\" is declared twice"));
        let upper = group(Resource::new("Things", "Thing", lifecycle()));
        assert!(problem(upper).contains("name \"Things\""));
        let lower = group(Resource::new("things", "thing", lifecycle()));
        assert!(problem(lower).contains("kind \"thing\""));
        assert!(problem(Group::new("api")).contains("other than `api`"));
        let status = || Subresource::new("status");
        let subresources = things(lifecycle())
            .with_subresource(status())
            .with_subresource(status());
        assert!(problem(group(subresources)).contains("subresource \"status\""));
    }

    #[test]
    fn resource_with_another_kind_or_scope_in_another_version_is_refused() {
        let beta = |resource| Version::new("v1beta1").with_resource(resource);
        let other_kind = group(things(Lifecycle::always())).with_version(beta(Resource::new(
            "things",
            "Other",
            Lifecycle::always(),
        )));
        assert!(problem(other_kind).contains("another kind"));
        let other_scope = group(things(Lifecycle::always()))
            .with_version(beta(things(Lifecycle::always()).cluster_scoped()));
        assert!(problem(other_scope).contains("another scope"));
    }
}
