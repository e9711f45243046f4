//! What a process serves and, for everything else that it knows, the reason why not.

use std::collections::BTreeMap;
use std::fmt;

use portunus_gates::MajorMinor;
use serde::Serialize;

use crate::declare::Resource;
use crate::deprecation::Deprecation;
use crate::enablement::{SetBy, Switch};
use crate::lifecycle::Releases;
use crate::names::{
    GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, VersionName,
};
use crate::storage::StorageVersion;
use crate::warnings::StartWarning;

/// Why a resource is served at the emulated release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The emulated release has it.
    Release,
    /// It is newer, and `--emulation-forward-compatible` is set while a lower version is
    /// served.
    ForwardCompatible,
    /// It is newer, named in runtime-config, and
    /// `--runtime-config-emulation-forward-compatible` is set.
    RuntimeConfig,
    /// The emulated release removed it, but the binary is an alpha build.
    AlphaBuild,
    /// The emulated release removed it, but the environment keeps it one release longer.
    OneMoreRelease,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Basis::Release => "the emulated release has it",
            Basis::ForwardCompatible => {
                "it is newer than the emulated release, and --emulation-forward-compatible is set"
            }
            Basis::RuntimeConfig => {
                "it is newer than the emulated release, and \
                 --runtime-config-emulation-forward-compatible is set"
            }
            Basis::AlphaBuild => {
                "the emulated release removed it, but the binary is an alpha build"
            }
            Basis::OneMoreRelease => {
                "the emulated release removed it, but removed APIs are kept for one more release"
            }
        })
    }
}

/// Why a known resource is not served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
#[non_exhaustive]
pub enum NotServed {
    /// Switched off.
    Disabled {
        /// What switched it off.
        by: SetBy,
    },
    /// Removed at or before the emulated release.
    Removed {
        /// The release of the removal.
        removed: MajorMinor,
        /// The emulated release.
        current: MajorMinor,
        /// The kind to use instead.
        replacement: Option<GroupVersionKind>,
    },
    /// Introduced after the emulated release.
    NotIntroduced {
        /// The release of the introduction.
        introduced: MajorMinor,
        /// The emulated release.
        current: MajorMinor,
    },
    /// A subresource whose kind no declaration has.
    KindNotDeclared,
}

impl NotServed {
    /// Returns the line that kube-apiserver logs when it drops a resource by its lifecycle;
    /// none for a resource that is switched off.
    pub fn log_line(&self, name: &GroupVersionResource) -> Option<String> {
        let name = name.dotted();
        match self {
            NotServed::Disabled { .. } => None,
            NotServed::Removed { .. } | NotServed::KindNotDeclared => Some(format!(
                "Removing resource {name} because it is time to stop serving it per APILifecycle."
            )),
            NotServed::NotIntroduced { current, .. } => Some(format!(
                "Removing resource {name} because it is introduced after the current version \
                 {current} per APILifecycle."
            )),
        }
    }
}

impl fmt::Display for NotServed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotServed::Disabled { by } => write!(f, "it is switched off by {by}"),
            NotServed::Removed {
                removed,
                current,
                replacement,
            } => {
                write!(
                    f,
                    "it was removed in {removed}, and this server emulates {current}"
                )?;
                match replacement {
                    Some(kind) => write!(f, "; use {} {}", kind.group_version(), kind.kind),
                    None => Ok(()),
                }
            }
            NotServed::NotIntroduced {
                introduced,
                current,
            } => write!(
                f,
                "it is introduced in {introduced}, and this server emulates {current}"
            ),
            NotServed::KindNotDeclared => f.write_str("no declaration has its kind"),
        }
    }
}

/// A resource that is served in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// Its group, version and plural name.
    pub name: GroupVersionResource,
    /// Its declaration, with only the subresources that are served.
    pub resource: Resource,
    /// Its lifecycle with the policy filled in.
    pub releases: Releases,
    /// The version in which its objects are stored.
    pub storage: StorageVersion,
    /// Its deprecation, if it is deprecated at the emulated release.
    pub deprecation: Option<Deprecation>,
    /// What switched it on.
    pub switch: Switch,
    /// Why the emulated release serves it.
    pub basis: Basis,
}

impl ServedResource {
    /// Returns its group, version and kind.
    pub fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(
            self.name.group.clone(),
            self.name.version.clone(),
            self.resource.kind.clone(),
        )
    }

    /// Returns a served subresource.
    pub fn subresource(&self, name: &str) -> Option<&crate::Subresource> {
        self.resource
            .subresources
            .iter()
            .find(|sub| sub.name == name)
    }
}

/// A version that is served; it has at least one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// Its group and name.
    pub name: GroupVersion,
    /// Its resources by plural name.
    pub resources: Vec<ServedResource>,
}

impl ServedVersion {
    /// Returns the resource with this plural name.
    pub fn resource(&self, plural: &str) -> Option<&ServedResource> {
        let by_name = |resource: &ServedResource| resource.name.resource.as_str().cmp(plural);
        let at = self.resources.binary_search_by(by_name).ok()?;
        self.resources.get(at)
    }

    /// Returns the resource whose objects have this kind.
    pub fn resource_of_kind(&self, kind: &str) -> Option<&ServedResource> {
        self.resources
            .iter()
            .find(|resource| resource.resource.kind == kind)
    }
}

/// A group that is served; it has at least one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedGroup {
    /// Its name; empty for the core group.
    pub name: String,
    /// Its versions, the most preferred first.
    pub versions: Vec<ServedVersion>,
}

impl ServedGroup {
    /// Returns the version that clients should use: the most preferred one that is served.
    pub fn preferred_version(&self) -> Option<&VersionName> {
        self.versions.first().map(|version| &version.name.version)
    }
}

/// The answer about a resource by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// It is served.
    Served(&'a ServedResource),
    /// The binary knows it, but does not serve it.
    NotServed(&'a NotServed),
    /// The binary does not know it.
    Unknown,
}

/// What a process serves, stores and warns about; made by [`resolve`](crate::resolve()).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedApis {
    pub(crate) groups: Vec<ServedGroup>,
    pub(crate) not_served: BTreeMap<String, BTreeMap<VersionName, BTreeMap<String, NotServed>>>,
    pub(crate) storage: BTreeMap<GroupResource, StorageVersion>,
    pub(crate) warnings: Vec<StartWarning>,
}

impl ServedApis {
    /// Returns the served groups in the order of their declaration.
    pub fn groups(&self) -> &[ServedGroup] {
        &self.groups
    }

    /// Returns a served group.
    pub fn group(&self, name: &str) -> Option<&ServedGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns a served version.
    pub fn version(&self, group: &str, version: &str) -> Option<&ServedVersion> {
        let mut versions = self.group(group)?.versions.iter();
        versions.find(|served| served.name.version.as_str() == version)
    }

    /// Returns what is known about a resource, by its plural name.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Lookup<'_> {
        let version_served = self.version(group, version);
        if let Some(served) = version_served.and_then(|it| it.resource(plural)) {
            return Lookup::Served(served);
        }
        match self.reason(group, version, plural) {
            Some(reason) => Lookup::NotServed(reason),
            None => Lookup::Unknown,
        }
    }

    /// Returns why a known resource or subresource (`things/status`) is not served.
    pub fn reason(&self, group: &str, version: &str, name: &str) -> Option<&NotServed> {
        self.not_served
            .get(group)?
            .get(&VersionName::from(version))?
            .get(name)
    }

    /// Iterates over the served resources.
    pub fn resources(&self) -> impl Iterator<Item = &ServedResource> {
        let versions = self.groups.iter().flat_map(|group| &group.versions);
        versions.flat_map(|version| &version.resources)
    }

    /// Iterates over the known resources and subresources that are not served.
    pub fn not_served(&self) -> impl Iterator<Item = (GroupVersionResource, &NotServed)> {
        self.not_served.iter().flat_map(|(group, versions)| {
            versions.iter().flat_map(move |(version, names)| {
                names.iter().map(move |(name, reason)| {
                    let name = GroupVersionResource::new(&**group, version.clone(), &**name);
                    (name, reason)
                })
            })
        })
    }

    /// Returns the version in which the objects of a resource are stored, served or not.
    pub fn storage_version(&self, group: &str, plural: &str) -> Option<&StorageVersion> {
        self.storage.get(&GroupResource::new(group, plural))
    }

    /// Iterates over the storage versions of all known resources.
    pub fn storage_versions(&self) -> impl Iterator<Item = (&GroupResource, &StorageVersion)> {
        self.storage.iter()
    }

    /// Returns what an operator must know at start.
    pub fn warnings(&self) -> &[StartWarning] {
        &self.warnings
    }

    /// Returns the lines to log at start: one per resource that its lifecycle removes.
    pub fn log_lines(&self) -> Vec<String> {
        self.not_served()
            .filter_map(|(name, reason)| reason.log_line(&name))
            .collect()
    }
}
