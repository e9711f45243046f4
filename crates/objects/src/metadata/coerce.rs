//! Metadata as a client sent it: known fields, right types, nothing empty.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::decode::type_name;
use crate::go_format::quote;
use crate::place::{Place, REPORTS_MAX};
use crate::timestamp;

/// Metadata with a value of the wrong type, or metadata that is no map.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct MetadataError(String);

#[derive(Clone, Copy)]
enum Type {
    Text,
    Integer,
    Boolean,
    Time,
    TextMap,
    TextList,
    OwnerList,
    AnyList,
}

const FIELDS: &[(&str, Type)] = &[
    ("annotations", Type::TextMap),
    ("creationTimestamp", Type::Time),
    ("deletionGracePeriodSeconds", Type::Integer),
    ("deletionTimestamp", Type::Time),
    ("finalizers", Type::TextList),
    ("generateName", Type::Text),
    ("generation", Type::Integer),
    ("labels", Type::TextMap),
    ("managedFields", Type::AnyList),
    ("name", Type::Text),
    ("namespace", Type::Text),
    ("ownerReferences", Type::OwnerList),
    ("resourceVersion", Type::Text),
    ("selfLink", Type::Text),
    ("uid", Type::Text),
];

const OWNER_FIELDS: &[(&str, Type)] = &[
    ("apiVersion", Type::Text),
    ("blockOwnerDeletion", Type::Boolean),
    ("controller", Type::Boolean),
    ("kind", Type::Text),
    ("name", Type::Text),
    ("uid", Type::Text),
];

/// Removes unknown and empty fields of the metadata and returns the paths of the unknown ones.
/// A value of the wrong type is an error.
pub fn coerce(object: &mut Value) -> Result<Vec<String>, MetadataError> {
    let Some(metadata) = object.get_mut("metadata") else {
        return Ok(Vec::new());
    };
    let mut unknown = Vec::new();
    match metadata {
        Value::Null => *metadata = Value::Object(Map::new()),
        Value::Object(fields) => coerce_fields(fields, FIELDS, "metadata", &mut unknown)?,
        other => return Err(wrong_type(other, "metadata", "v1.ObjectMeta")),
    }
    Ok(unknown)
}

fn coerce_fields(
    fields: &mut Map<String, Value>,
    known: &[(&str, Type)],
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), MetadataError> {
    let names: Vec<String> = fields.keys().cloned().collect();
    for name in names {
        let at = Place::Field(&Place::Field(&Place::Root, path), &name).text();
        let Some((_, expected)) = known.iter().find(|(known, _)| *known == name) else {
            fields.remove(&name);
            if unknown.len() < REPORTS_MAX {
                unknown.push(at);
            }
            continue;
        };
        if let Some(value) = fields.get_mut(&name) {
            coerce_value(value, *expected, &at, unknown)?;
            if is_empty(value) {
                fields.remove(&name);
            }
        }
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn coerce_value(
    value: &mut Value,
    expected: Type,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), MetadataError> {
    match (expected, &mut *value) {
        (_, Value::Null) | (Type::Text, Value::String(_)) | (Type::Boolean, Value::Bool(_)) => {}
        (Type::Integer, Value::Number(number)) if number.is_i64() => {}
        (Type::Time, Value::String(text)) => {
            if !text.is_empty() && timestamp::parse(text).is_none() {
                let text = quote(text);
                return Err(MetadataError(format!(
                    "parsing time {text} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text} as \"2006\""
                )));
            }
        }
        (Type::TextMap, Value::Object(map)) => {
            for value in map.values_mut() {
                match value {
                    Value::String(_) => {}
                    Value::Null => *value = Value::String(String::new()),
                    other => return Err(wrong_type(other, path, "string")),
                }
            }
        }
        (Type::TextList, Value::Array(items)) => {
            if let Some(other) = items.iter().find(|item| !item.is_string()) {
                return Err(wrong_type(other, path, "string"));
            }
        }
        (Type::OwnerList, Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                let at = format!("{path}[{index}]");
                match item {
                    Value::Object(fields) => coerce_fields(fields, OWNER_FIELDS, &at, unknown)?,
                    other => return Err(wrong_type(other, path, "v1.OwnerReference")),
                }
            }
        }
        (Type::AnyList, Value::Array(_)) => {}
        (expected, other) => return Err(wrong_type(other, path, go_type(expected))),
    }
    Ok(())
}

fn go_type(expected: Type) -> &'static str {
    match expected {
        Type::Text => "string",
        Type::Integer => "int64",
        Type::Boolean => "bool",
        Type::Time => "v1.Time",
        Type::TextMap => "map[string]string",
        Type::TextList => "[]string",
        Type::OwnerList => "[]v1.OwnerReference",
        Type::AnyList => "[]v1.ManagedFieldsEntry",
    }
}

fn wrong_type(value: &Value, path: &str, go_type: &str) -> MetadataError {
    let found = type_name(value);
    let field = path.strip_prefix("metadata.").unwrap_or(path);
    MetadataError(format!(
        "json: cannot unmarshal {found} into Go struct field ObjectMeta.{field} of type {go_type}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_and_empty_fields_are_removed() {
        let mut object = json!({"metadata": {"name": "a", "namespace": "", "creationTimestamp": null,
            "labels": {}, "clusterName": "x", "annotations": {"k": null},
            "ownerReferences": [{"kind": "K", "name": "n", "extra": 1}]}});
        assert_eq!(
            coerce(&mut object).unwrap(),
            ["metadata.clusterName", "metadata.ownerReferences[0].extra"]
        );
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "annotations": {"k": ""},
                "ownerReferences": [{"kind": "K", "name": "n"}]}})
        );
    }

    #[test]
    fn wrong_types_are_refused() {
        let cases = [
            (
                json!(1),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata of type v1.ObjectMeta",
            ),
            (
                json!({"name": 1}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
            ),
            (
                json!({"labels": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            ),
            (
                json!({"generation": "1"}),
                "json: cannot unmarshal string into Go struct field ObjectMeta.generation of type int64",
            ),
            (
                json!({"finalizers": [1]}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.finalizers of type string",
            ),
            (
                json!({"creationTimestamp": "x"}),
                "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
            ),
        ];
        for (metadata, text) in cases {
            let error = coerce(&mut json!({"metadata": metadata})).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn missing_metadata_stays_missing() {
        let mut object = json!({"spec": {}});
        assert!(coerce(&mut object).unwrap().is_empty());
        assert_eq!(object, json!({"spec": {}}));
    }
}
