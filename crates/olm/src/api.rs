//! The API of OLMConfig: names, and one schema per version.

use portunus_objects::field::{FieldError, Path};
use portunus_objects::metadata;
use portunus_objects::schema::{Schema, SchemaError};
use serde_json::{Value, json};

/// The API group.
pub const GROUP: &str = "operators.coreos.com";
/// The kind.
pub const KIND: &str = "OLMConfig";
/// The plural name of the resource.
pub const PLURAL: &str = "olmconfigs";
/// The singular name of the resource.
pub const SINGULAR: &str = "olmconfig";
/// The name of the only object, which is cluster-scoped.
pub const SINGLETON: &str = "cluster";
/// The version without the list of gates.
pub const V1: &str = "v1";
/// The version with the list of gates.
pub const V2ALPHA1: &str = "v2alpha1";

/// The most entries of the list of gates.
pub const GATES_MAX: usize = 256;
/// The most letters of a gate's name.
pub const GATE_NAME_LENGTH_MAX: usize = 63;

/// Returns the schema of v1 in the form of a custom resource definition.
#[must_use]
pub fn v1_schema() -> Value {
    schema(json!({
        "disableCopiedCSVs": old_field_schema(),
        "packageServerSyncInterval": interval_schema(),
    }))
}

/// Returns the schema of v2alpha1 in the form of a custom resource definition.
#[must_use]
pub fn v2alpha1_schema() -> Value {
    schema(json!({
        "disableCopiedCSVs": old_field_schema(),
        "gates": gates_schema(),
        "packageServerSyncInterval": interval_schema(),
    }))
}

/// Parses the schema of a version; `None` for an unknown version.
#[must_use]
pub fn schema_of(version: &str) -> Option<Result<Schema, SchemaError>> {
    match version {
        V1 => Some(Schema::parse(&v1_schema())),
        V2ALPHA1 => Some(Schema::parse(&v2alpha1_schema())),
        _ => None,
    }
}

/// Refuses every name but that of the singleton.
#[must_use]
pub fn validate_name(object: &Value) -> Option<FieldError> {
    let name = metadata::name(object);
    let path = Path::new("metadata").child("name");
    let detail = format!("must be {SINGLETON:?}: the configuration of OLM is one object");
    (name != SINGLETON).then(|| FieldError::invalid(&path, name, &detail))
}

fn schema(features: Value) -> Value {
    json!({
        "type": "object",
        "description": "OLMConfig configures the Operator Lifecycle Manager.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "The wanted configuration.",
                "properties": {
                    "features": {
                        "type": "object",
                        "description": "The features that can be configured.",
                        "properties": features,
                    },
                },
            },
            "status": {
                "type": "object",
                "description": "The state of the configuration.",
                "properties": {"conditions": conditions_schema()},
            },
        },
    })
}

fn old_field_schema() -> Value {
    json!({
        "type": "boolean",
        "description": "Deprecated: use the gate disableCopiedCSVs of v2alpha1. Removes the copies of cluster-scoped operators from all namespaces.",
    })
}

fn interval_schema() -> Value {
    json!({
        "type": "string",
        "pattern": "^([0-9]+(\\.[0-9]+)?(s|m|h))+$",
        "description": "The time between two synchronisations of the package server, such as 5m.",
    })
}

fn gates_schema() -> Value {
    json!({
        "type": "array",
        "description": "The gates that switch features on and off.",
        "maxItems": GATES_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "description": "The value of one gate.",
            "required": ["name", "value"],
            "properties": {
                "name": {
                    "type": "string",
                    "description": "The name of the feature.",
                    "minLength": 1,
                    "maxLength": GATE_NAME_LENGTH_MAX,
                },
                "value": {"type": "boolean", "description": "Whether the feature is on."},
            },
        },
    })
}

fn conditions_schema() -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {"type": "string", "minLength": 1, "maxLength": 316},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_schemas_are_structural() {
        assert!(schema_of(V1).unwrap().is_ok());
        assert!(schema_of(V2ALPHA1).unwrap().is_ok());
        assert!(schema_of("v3").is_none());
    }

    #[test]
    fn only_the_singleton_is_a_valid_name() {
        assert_eq!(
            validate_name(&json!({"metadata": {"name": "cluster"}})),
            None
        );
        let error = validate_name(&json!({"metadata": {"name": "other"}})).unwrap();
        assert_eq!(
            error.to_string(),
            "metadata.name: Invalid value: \"other\": must be \"cluster\": the configuration of OLM is one object"
        );
    }
}
