//! The documents by which clients discover what is served, in both forms.
//!
//! | path | legacy form | aggregated form |
//! | --- | --- | --- |
//! | `/api` | [`core_versions`] | [`aggregated`] with [`Part::Core`] |
//! | `/apis` | [`group_list`] | [`aggregated`] with [`Part::Groups`] |
//! | `/apis/<group>` | [`group()`] | |
//! | `/api/<version>`, `/apis/<group>/<version>` | [`resource_list`] | |
//!
//! Every document is made from [`ServedApis`], so it never names anything that is not served.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::declare::{Subresource, Verb};
use crate::names::GroupVersionKind;
use crate::served::{ServedApis, ServedGroup, ServedResource, ServedVersion};

/// How many bytes of the digest a storage version hash has.
const HASH_BYTES: usize = 8;

/// Returns the hash that discovery shows for a storage version. Equal hashes mean that
/// objects are stored in the same version.
pub fn storage_version_hash(kind: &GroupVersionKind) -> String {
    let text = format!("{}/{}/{}", kind.group, kind.version, kind.kind);
    let digest = Sha256::digest(text.as_bytes());
    STANDARD.encode(&digest[..HASH_BYTES])
}

/// The address of a server for clients of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerAddress {
    /// The network of the clients.
    #[serde(rename = "clientCIDR")]
    pub client_cidr: String,
    /// Host and port.
    pub server_address: String,
}

/// The document of `/api`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiVersions {
    kind: &'static str,
    /// The versions of the core group.
    pub versions: Vec<String>,
    /// Where clients reach the server.
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub server_addresses: Vec<ServerAddress>,
}

/// Returns the document of `/api`.
pub fn core_versions(apis: &ServedApis, server_addresses: Vec<ServerAddress>) -> ApiVersions {
    let versions = apis.group("").map_or(&[][..], |group| &group.versions);
    let name = |version: &ServedVersion| version.name.version.to_string();
    ApiVersions {
        kind: "APIVersions",
        versions: versions.iter().map(name).collect(),
        server_addresses,
    }
}

/// A version in the document of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionEntry {
    /// Group and version.
    pub group_version: String,
    /// The version alone.
    pub version: String,
}

/// The document of `/apis/<group>`, and an entry of `/apis`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroup {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    /// The group.
    pub name: String,
    /// Its versions, the preferred one first.
    pub versions: Vec<VersionEntry>,
    /// The version that clients should use; it is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_version: Option<VersionEntry>,
}

/// The document of `/apis`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroupList {
    kind: &'static str,
    api_version: &'static str,
    /// The groups beside the core group.
    pub groups: Vec<ApiGroup>,
}

fn group_entry(group: &ServedGroup) -> ApiGroup {
    let entry = |version: &ServedVersion| VersionEntry {
        group_version: version.name.to_string(),
        version: version.name.version.to_string(),
    };
    let versions: Vec<VersionEntry> = group.versions.iter().map(entry).collect();
    ApiGroup {
        kind: None,
        api_version: None,
        name: group.name.clone(),
        preferred_version: versions.first().cloned(),
        versions,
    }
}

/// Returns the document of `/apis`.
pub fn group_list(apis: &ServedApis) -> ApiGroupList {
    let groups = apis.groups().iter().filter(|group| !group.name.is_empty());
    ApiGroupList {
        kind: "APIGroupList",
        api_version: "v1",
        groups: groups.map(group_entry).collect(),
    }
}

/// Returns the document of `/apis/<name>`; none where the group is not served.
pub fn group(apis: &ServedApis, name: &str) -> Option<ApiGroup> {
    let entry = group_entry(apis.group(name).filter(|group| !group.name.is_empty())?);
    Some(ApiGroup {
        kind: Some("APIGroup"),
        api_version: Some("v1"),
        ..entry
    })
}

/// A resource or subresource in the document of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource {
    /// `things` or `things/status`.
    pub name: String,
    /// Empty for a subresource.
    pub singular_name: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The group of its kind, where it is not the group of the document.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version of its kind, where it is not the version of the document.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// What clients may do with it.
    pub verbs: Vec<Verb>,
    /// Short names for the command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    /// The categories it belongs to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// The hash of the storage version; empty for a subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_version_hash: String,
}

/// The document of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceList {
    kind: &'static str,
    /// Left out for the core group, as its clients expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    /// Group and version.
    pub group_version: String,
    /// Resources and subresources by name.
    pub resources: Vec<ApiResource>,
}

/// Returns the document of a version; none where it is not served.
pub fn resource_list(apis: &ServedApis, group: &str, version: &str) -> Option<ApiResourceList> {
    let served = apis.version(group, version)?;
    let mut resources = Vec::new();
    for resource in &served.resources {
        resources.push(resource_entry(resource));
        let subresources = sorted(&resource.resource.subresources);
        resources.extend(subresources.map(|sub| subresource_entry(resource, sub)));
    }
    Some(ApiResourceList {
        kind: "APIResourceList",
        api_version: (!group.is_empty()).then_some("v1"),
        group_version: served.name.to_string(),
        resources,
    })
}

fn sorted(subresources: &[Subresource]) -> impl Iterator<Item = &Subresource> {
    let mut sorted: Vec<&Subresource> = subresources.iter().collect();
    sorted.sort_by(|left, right| left.name.cmp(&right.name));
    sorted.into_iter()
}

fn verbs(declared: &[Verb]) -> Vec<Verb> {
    let mut verbs = declared.to_vec();
    verbs.sort();
    verbs.dedup();
    verbs
}

fn resource_entry(served: &ServedResource) -> ApiResource {
    let resource = &served.resource;
    let stored = GroupVersionKind::new(
        served.name.group.clone(),
        served.storage.version.clone(),
        resource.kind.clone(),
    );
    ApiResource {
        name: resource.plural.clone(),
        singular_name: resource.singular.clone(),
        namespaced: resource.namespaced,
        group: String::new(),
        version: String::new(),
        kind: resource.kind.clone(),
        verbs: verbs(&resource.verbs),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        storage_version_hash: storage_version_hash(&stored),
    }
}

fn subresource_entry(served: &ServedResource, sub: &Subresource) -> ApiResource {
    let kind = sub.kind.clone();
    let (group, version, kind) = match kind {
        Some(kind) => (kind.group, kind.version.to_string(), kind.kind),
        None => (String::new(), String::new(), served.resource.kind.clone()),
    };
    ApiResource {
        name: format!("{}/{}", served.resource.plural, sub.name),
        singular_name: String::new(),
        namespaced: served.resource.namespaced,
        group,
        version,
        kind,
        verbs: verbs(&sub.verbs),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: String::new(),
    }
}

/// Which groups an aggregated document has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The core group, for `/api`.
    Core,
    /// The other groups, for `/apis`.
    Groups,
}

/// The version of the aggregated document itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `apidiscovery.k8s.io/v2`
    V2,
    /// `apidiscovery.k8s.io/v2beta1`
    V2Beta1,
}

impl Format {
    /// Returns the `apiVersion` of the document.
    pub const fn api_version(self) -> &'static str {
        match self {
            Format::V2 => "apidiscovery.k8s.io/v2",
            Format::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// The metadata of an object without any but a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NameMeta {
    /// The name; left out for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// The metadata of a list without any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmptyMeta {}

/// A kind in the aggregated document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResponseKind {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl From<GroupVersionKind> for ResponseKind {
    fn from(kind: GroupVersionKind) -> ResponseKind {
        ResponseKind {
            group: kind.group,
            version: kind.version.to_string(),
            kind: kind.kind,
        }
    }
}

/// A subresource in the aggregated document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubresourceDiscovery {
    /// The name after the slash.
    pub subresource: String,
    /// The kind of its bodies.
    pub response_kind: ResponseKind,
    /// What clients may do with it.
    pub verbs: Vec<Verb>,
}

/// A resource in the aggregated document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDiscovery {
    /// The plural name.
    pub resource: String,
    /// The kind of its objects.
    pub response_kind: ResponseKind,
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
    /// The singular name.
    pub singular_resource: String,
    /// What clients may do with it.
    pub verbs: Vec<Verb>,
    /// Short names for the command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    /// The categories it belongs to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Its subresources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<SubresourceDiscovery>,
}

/// A version in the aggregated document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionDiscovery {
    /// The version.
    pub version: String,
    /// Its resources by name.
    pub resources: Vec<ResourceDiscovery>,
    /// Always `Current`: the process knows its own APIs.
    pub freshness: &'static str,
}

/// A group in the aggregated document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupDiscovery {
    /// The name of the group.
    pub metadata: NameMeta,
    /// Its versions, the preferred one first.
    pub versions: Vec<VersionDiscovery>,
}

/// The aggregated document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupDiscoveryList {
    kind: &'static str,
    api_version: &'static str,
    metadata: EmptyMeta,
    /// The groups.
    pub items: Vec<GroupDiscovery>,
}

/// Returns the aggregated document of `/api` or `/apis`.
pub fn aggregated(apis: &ServedApis, part: Part, format: Format) -> GroupDiscoveryList {
    let is_in_part = |group: &&ServedGroup| group.name.is_empty() == (part == Part::Core);
    let groups = apis.groups().iter().filter(is_in_part);
    GroupDiscoveryList {
        kind: "APIGroupDiscoveryList",
        api_version: format.api_version(),
        metadata: EmptyMeta {},
        items: groups
            .map(|group| GroupDiscovery {
                metadata: NameMeta {
                    name: group.name.clone(),
                },
                versions: group.versions.iter().map(version_discovery).collect(),
            })
            .collect(),
    }
}

fn version_discovery(version: &ServedVersion) -> VersionDiscovery {
    VersionDiscovery {
        version: version.name.version.to_string(),
        resources: version.resources.iter().map(resource_discovery).collect(),
        freshness: "Current",
    }
}

fn resource_discovery(served: &ServedResource) -> ResourceDiscovery {
    let resource = &served.resource;
    let subresources = sorted(&resource.subresources).map(|sub| SubresourceDiscovery {
        subresource: sub.name.clone(),
        response_kind: sub.kind.clone().unwrap_or_else(|| served.kind()).into(),
        verbs: verbs(&sub.verbs),
    });
    ResourceDiscovery {
        resource: resource.plural.clone(),
        response_kind: served.kind().into(),
        scope: if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        },
        singular_resource: resource.singular.clone(),
        verbs: verbs(&resource.verbs),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        subresources: subresources.collect(),
    }
}
