//! Schemas of kinds and their lists.

use serde_json::{Map, Value, json};

use super::metadata::{LIST_META, OBJECT_META};
use crate::api::Target;

const API_VERSION: &str = "The version of the schema of this object, such as example.io/v1.";
const KIND: &str = "The kind of this object.";

/// Returns the name of a kind: the reversed group, the version, the kind.
pub(super) fn name_of(target: Target<'_>) -> String {
    let group = &target.resource.definition.group;
    let mut parts: Vec<&str> = group.split('.').filter(|part| !part.is_empty()).collect();
    parts.reverse();
    parts.push(&target.version.name);
    parts.push(&target.resource.definition.kind);
    parts.join(".")
}

/// Returns group, version and kind as an extension of OpenAPI shows them.
pub(super) fn group_version_kind(target: Target<'_>, suffix: &str) -> Value {
    json!({
        "group": target.resource.definition.group,
        "version": target.version.name,
        "kind": format!("{}{suffix}", target.resource.definition.kind),
    })
}

/// Returns the schemas of a kind and of its list.
pub(super) fn of(target: Target<'_>, root: &str) -> Map<String, Value> {
    let name = name_of(target);
    let mut schema = target.version.document.clone();
    let reference = |to: &str| json!({"$ref": format!("{root}{to}")});
    let described = |to: &str, description: &str| json!({"allOf": [reference(to)], "description": description, "default": {}});
    if let Some(schema) = schema.as_object_mut() {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            let text = |description: &str| json!({"type": "string", "description": description});
            properties.insert("apiVersion".to_owned(), text(API_VERSION));
            properties.insert("kind".to_owned(), text(KIND));
            let metadata = described(OBJECT_META, "The metadata of the object.");
            properties.insert("metadata".to_owned(), metadata);
        }
        let kinds = json!([group_version_kind(target, "")]);
        schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
    }
    let list = json!({
        "type": "object",
        "description": format!("A list of objects of the kind {}.", target.resource.definition.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": described(LIST_META, "The metadata of the list."),
            "items": {
                "type": "array",
                "description": "The objects.",
                "items": reference(&name),
            },
        },
        "x-kubernetes-group-version-kind": [group_version_kind(target, "List")],
    });
    Map::from_iter([(format!("{name}List"), list), (name, schema)])
}
