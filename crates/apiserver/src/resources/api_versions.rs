//! `apiversions`: every version of every resource that the binary knows, with its state.

use std::collections::BTreeMap;

use crate::{Api, CollectionPublisher, Definition, VersionDefinition};
use portunus_apis::{GroupVersionResource, Lifecycle, Remedy, explain};
use portunus_gates::MajorMinor;
use portunus_objects::table::Columns;
use serde_json::{Value, json};

use super::{LIFECYCLE_GROUP, ResourcesError};

const KIND: &str = "ApiVersion";

/// The resource. It is served under every emulation, because it explains the emulation.
pub fn definition(objects: &CollectionPublisher) -> Result<Definition, ResourcesError> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let flag = |description: &str| json!({"type": "boolean", "description": description});
    let schema = json!({
        "type": "object",
        "description": "ApiVersion is one version of a resource that this server knows.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "The declaration.",
                "properties": {
                    "group": text("The API group; empty for the core group."),
                    "version": text("The version."),
                    "resource": text("The plural name of the resource."),
                    "kind": text("The kind of its objects."),
                    "introduced": text("The release that introduced it."),
                    "deprecated": text("The release that deprecated it."),
                    "removed": text("The release that removed it."),
                },
            },
            "status": {
                "type": "object",
                "description": "The state in this server.",
                "properties": {
                    "served": flag("Whether it is served."),
                    "preferred": flag("Whether clients should use it."),
                    "reason": text("Why it is served or not."),
                    "emulationVersion": text("The release that the server emulates."),
                    "storageVersion": text("The version in which objects are stored."),
                    "deprecationWarning": text("The warning that clients receive."),
                    "changedBy": {
                        "type": "array",
                        "description": "Flags with which that would be different.",
                        "items": {"type": "string"},
                    },
                },
            },
        },
    });
    let columns = Columns::named()
        .column("Served", "boolean", ".status.served")?
        .column("Preferred", "boolean", ".status.preferred")?
        .column("Introduced", "string", ".spec.introduced")?
        .column("Deprecated", "string", ".spec.deprecated")?
        .column("Removed", "string", ".spec.removed")?
        .column("Stored As", "string", ".status.storageVersion")?
        .wide_column("Reason", "string", ".status.reason")?
        .wide_column("Changed By", "string", ".status.changedBy[0]")?;
    let version = VersionDefinition::new("v1alpha1", Lifecycle::always(), schema)?;
    Ok(Definition::new(LIFECYCLE_GROUP, KIND, "apiversions")
        .cluster_scoped()
        .with_version(version.served_by_default(true).with_columns(columns))
        .from_collection(objects))
}

/// Returns the objects: what `explain` knows about every declared resource.
pub fn objects(api: &Api) -> BTreeMap<String, Value> {
    let declared = api.declarations().resources();
    declared
        .filter_map(|(name, resource)| {
            let object = object(api, &name, &resource.kind)?;
            Some((object_name(&name), object))
        })
        .collect()
}

/// Returns the dotted name; the core group has no name.
fn object_name(name: &GroupVersionResource) -> String {
    name.dotted().trim_end_matches('.').to_owned()
}

fn object(api: &Api, name: &GroupVersionResource, kind: &str) -> Option<Value> {
    let explanation = explain(api.declarations(), api.options(), name).ok()?;
    let release = |release: Option<MajorMinor>| {
        release.map_or_else(String::new, |release| release.to_string())
    };
    let introduced = Some(explanation.releases.introduced).filter(|it| *it != MajorMinor::ZERO);
    let storage = explanation
        .storage
        .map(|storage| storage.version.to_string());
    let warning = explanation.deprecation.map(|it| it.warning);
    let remedies = explanation.to_change.iter().map(Remedy::to_string);
    Some(json!({
        "apiVersion": format!("{LIFECYCLE_GROUP}/v1alpha1"),
        "kind": KIND,
        "metadata": {"name": object_name(name)},
        "spec": {
            "group": name.group,
            "version": name.version.as_str(),
            "resource": name.resource,
            "kind": kind,
            "introduced": release(introduced),
            "deprecated": release(explanation.releases.deprecated),
            "removed": release(explanation.releases.removed),
        },
        "status": {
            "served": explanation.served,
            "preferred": explanation.preferred,
            "reason": explanation.why,
            "emulationVersion": explanation.current.to_string(),
            "storageVersion": storage.unwrap_or_default(),
            "deprecationWarning": warning.unwrap_or_default(),
            "changedBy": remedies.collect::<Vec<String>>(),
        },
    }))
}
