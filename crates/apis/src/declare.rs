//! Declarations: the groups, versions and resources that a binary knows.
//!
//! A declaration states what a type is and in which releases it exists. Nothing here depends
//! on the flags of a process; [`resolve`](crate::resolve()) derives what is served from both.

use portunus_gates::MajorMinor;
use serde::Serialize;

use crate::lifecycle::{Lifecycle, Releases};
use crate::names::{GroupVersion, GroupVersionKind, GroupVersionResource, VersionName};

/// A verb of a resource, in the order in which discovery lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Create one object.
    Create,
    /// Delete one object.
    Delete,
    /// Delete the objects of a collection that selectors match.
    DeleteCollection,
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Change a part of one object.
    Patch,
    /// Replace one object.
    Update,
    /// Receive the changes of a collection.
    Watch,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];

    /// The verbs of a resource that clients can only read.
    pub const READ_ONLY: [Verb; 3] = [Verb::Get, Verb::List, Verb::Watch];
}

/// Whether an API is served when runtime-config names neither it nor its class, by release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServedByDefault(Vec<(MajorMinor, bool)>);

impl ServedByDefault {
    /// Returns the value declared for a release; none where the stability decides.
    pub fn at(&self, release: MajorMinor) -> Option<bool> {
        let reached = self.0.iter().filter(|(since, _)| *since <= release);
        reached.max_by_key(|(since, _)| *since).map(|(_, on)| *on)
    }

    fn set(&mut self, since: MajorMinor, on: bool) {
        self.0.retain(|(other, _)| *other != since);
        self.0.push((since, on));
    }
}

/// A subresource such as `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// The name after the slash.
    pub name: String,
    /// The kind of its bodies, where it is not the kind of the resource. The lifecycle of
    /// this kind then decides whether the subresource is served; it must be declared, as a
    /// resource or by [`Declarations::with_kind`].
    pub kind: Option<GroupVersionKind>,
    /// What clients may do with it.
    pub verbs: Vec<Verb>,
}

impl Subresource {
    /// Creates a subresource with the kind of its resource and the verbs get, patch, update.
    pub fn new(name: impl Into<String>) -> Subresource {
        Subresource {
            name: name.into(),
            kind: None,
            verbs: vec![Verb::Get, Verb::Patch, Verb::Update],
        }
    }

    /// Sets the kind of its bodies.
    #[must_use]
    pub fn with_kind(mut self, kind: GroupVersionKind) -> Subresource {
        self.kind = Some(kind);
        self
    }

    /// Sets the verbs.
    #[must_use]
    pub fn with_verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Subresource {
        self.verbs = verbs.into_iter().collect();
        self
    }
}

/// A resource in one API version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The plural name, as in paths.
    pub plural: String,
    /// The singular name; by default the kind in lower case.
    pub singular: String,
    /// The kind of its objects.
    pub kind: String,
    /// Short names for the command line.
    pub short_names: Vec<String>,
    /// The categories it belongs to, such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// What clients may do with it.
    pub verbs: Vec<Verb>,
    /// The releases that have it.
    pub lifecycle: Lifecycle,
    /// Whether it is served by default, where that differs from its version.
    pub served_by_default: ServedByDefault,
    /// Its subresources.
    pub subresources: Vec<Subresource>,
}

impl Resource {
    /// Creates a namespaced resource with every verb.
    pub fn new(
        plural: impl Into<String>,
        kind: impl Into<String>,
        lifecycle: Lifecycle,
    ) -> Resource {
        let kind = kind.into();
        Resource {
            plural: plural.into(),
            singular: kind.to_lowercase(),
            kind,
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            verbs: Verb::ALL.to_vec(),
            lifecycle,
            served_by_default: ServedByDefault::default(),
            subresources: Vec::new(),
        }
    }

    /// Makes its objects cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Resource {
        self.namespaced = false;
        self
    }

    /// Adds short names.
    #[must_use]
    pub fn with_short_names<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Resource {
        self.short_names
            .extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Adds categories.
    #[must_use]
    pub fn with_categories<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Resource {
        self.categories.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Sets the verbs.
    #[must_use]
    pub fn with_verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Resource {
        self.verbs = verbs.into_iter().collect();
        self
    }

    /// Adds a subresource.
    #[must_use]
    pub fn with_subresource(mut self, subresource: Subresource) -> Resource {
        self.subresources.push(subresource);
        self
    }

    /// Declares whether it is served by default, in every release.
    #[must_use]
    pub fn served_by_default(self, on: bool) -> Resource {
        self.served_by_default_from(MajorMinor::ZERO, on)
    }

    /// Declares whether it is served by default from a release on.
    #[must_use]
    pub fn served_by_default_from(mut self, since: MajorMinor, on: bool) -> Resource {
        self.served_by_default.set(since, on);
        self
    }
}

/// One version of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The name, such as `v1beta1`.
    pub name: VersionName,
    /// Whether it is served by default; where nothing is declared, only GA versions are.
    pub served_by_default: ServedByDefault,
    /// Its resources.
    pub resources: Vec<Resource>,
}

impl Version {
    /// Creates a version without resources.
    pub fn new(name: impl Into<VersionName>) -> Version {
        Version {
            name: name.into(),
            served_by_default: ServedByDefault::default(),
            resources: Vec::new(),
        }
    }

    /// Declares whether it is served by default, in every release.
    #[must_use]
    pub fn served_by_default(self, on: bool) -> Version {
        self.served_by_default_from(MajorMinor::ZERO, on)
    }

    /// Declares whether it is served by default from a release on.
    #[must_use]
    pub fn served_by_default_from(mut self, since: MajorMinor, on: bool) -> Version {
        self.served_by_default.set(since, on);
        self
    }

    /// Adds a resource.
    #[must_use]
    pub fn with_resource(mut self, resource: Resource) -> Version {
        self.resources.push(resource);
        self
    }

    /// Returns the resource with this plural name.
    pub fn resource(&self, plural: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|resource| resource.plural == plural)
    }
}

/// An API group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: String,
    /// Its versions.
    pub versions: Vec<Version>,
}

impl Group {
    /// Creates a group without versions.
    pub fn new(name: impl Into<String>) -> Group {
        Group {
            name: name.into(),
            versions: Vec::new(),
        }
    }

    /// Adds a version.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Group {
        self.versions.push(version);
        self
    }

    /// Returns the version with this name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions
            .iter()
            .find(|version| version.name.as_str() == name)
    }
}

/// Everything that a binary knows, checked; the versions of a group are in the order of
/// preference, the most preferred first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declarations {
    groups: Vec<Group>,
    kinds: Vec<(GroupVersionKind, Lifecycle)>,
}

impl Declarations {
    /// Checks the declarations of groups.
    pub fn new(
        groups: impl IntoIterator<Item = Group>,
    ) -> Result<Declarations, crate::DeclarationErrors> {
        let mut groups: Vec<Group> = groups.into_iter().collect();
        crate::check::check(&groups)?;
        for group in &mut groups {
            group
                .versions
                .sort_by(|left, right| right.name.cmp(&left.name));
        }
        Ok(Declarations {
            groups,
            kinds: Vec::new(),
        })
    }

    /// Adds a kind that is no resource, for bodies of subresources such as `scale`.
    #[must_use]
    pub fn with_kind(mut self, kind: GroupVersionKind, lifecycle: Lifecycle) -> Declarations {
        self.kinds.push((kind, lifecycle));
        self
    }

    /// Returns the groups in the order of their declaration.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns a group.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns a version of a group.
    pub fn version(&self, name: &GroupVersion) -> Option<&Version> {
        self.group(&name.group)?.version(name.version.as_str())
    }

    /// Returns a resource; a subresource is not found.
    pub fn resource(&self, name: &GroupVersionResource) -> Option<&Resource> {
        self.group(&name.group)?
            .version(name.version.as_str())?
            .resource(&name.resource)
    }

    /// Iterates over every resource of every version.
    pub fn resources(&self) -> impl Iterator<Item = (GroupVersionResource, &Resource)> {
        self.groups.iter().flat_map(|group| {
            group.versions.iter().flat_map(|version| {
                version.resources.iter().map(|resource| {
                    let name = GroupVersionResource::new(
                        group.name.clone(),
                        version.name.clone(),
                        resource.plural.clone(),
                    );
                    (name, resource)
                })
            })
        })
    }

    /// Returns the lifecycle of a kind that is declared as a resource or by
    /// [`Declarations::with_kind`].
    pub fn releases_of_kind(&self, kind: &GroupVersionKind) -> Option<Releases> {
        let stability = kind.version.stability();
        let version = self.version(&kind.group_version());
        let resource = version.and_then(|version| {
            version
                .resources
                .iter()
                .find(|resource| resource.kind == kind.kind)
        });
        let other = || self.kinds.iter().find(|(name, _)| name == kind);
        resource
            .map(|resource| &resource.lifecycle)
            .or_else(|| other().map(|(_, lifecycle)| lifecycle))
            .map(|lifecycle| lifecycle.at(stability))
    }
}
