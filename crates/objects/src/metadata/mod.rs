//! The metadata of an object: access, validation and generated names.
//!
//! The functions read what a client may have sent: a field that is missing or has the wrong type
//! reads as empty. The schema reports wrong types, not this module.

mod coerce;
mod names;
mod validate;

pub use coerce::*;
pub use names::*;
pub use validate::*;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::timestamp;

/// Returns a field of the object itself, such as `kind`; empty if missing.
fn root_text<'object>(object: &'object Value, key: &str) -> &'object str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a field of the metadata.
#[must_use]
pub fn get<'object>(object: &'object Value, key: &str) -> Option<&'object Value> {
    object.get("metadata")?.get(key)
}

/// Returns a text of the metadata; empty if missing.
#[must_use]
pub fn text<'object>(object: &'object Value, key: &str) -> &'object str {
    get(object, key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the metadata for changes. A missing or malformed part is replaced by an empty map.
pub fn get_mut(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = as_map(object).entry("metadata").or_insert(Value::Null);
    as_map(metadata)
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // Replaced by a map above, so this cannot happen.
        _ => unreachable!("the value is a map"),
    }
}

/// Sets a field of the metadata, or removes it if the value is null or an empty text.
pub fn set(object: &mut Value, key: &str, value: impl Into<Value>) {
    let value = value.into();
    let is_empty = value.is_null() || value.as_str().is_some_and(str::is_empty);
    let metadata = get_mut(object);
    if is_empty {
        metadata.remove(key);
    } else {
        metadata.insert(key.to_owned(), value);
    }
}

/// Returns `apiVersion`.
#[must_use]
pub fn api_version(object: &Value) -> &str {
    root_text(object, "apiVersion")
}

/// Returns `kind`.
#[must_use]
pub fn kind(object: &Value) -> &str {
    root_text(object, "kind")
}

/// Sets `apiVersion` and `kind`.
pub fn set_type(object: &mut Value, api_version: &str, kind: &str) {
    let map = as_map(object);
    map.insert("apiVersion".to_owned(), api_version.into());
    map.insert("kind".to_owned(), kind.into());
}

/// Returns the name.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// Returns the prefix of a name to generate.
#[must_use]
pub fn generate_name(object: &Value) -> &str {
    text(object, "generateName")
}

/// Returns the namespace.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// Returns the unique id.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// Returns the resource version.
#[must_use]
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// Returns the generation; 0 if missing.
#[must_use]
pub fn generation(object: &Value) -> i64 {
    get(object, "generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// Returns the time of creation in seconds since 1970.
#[must_use]
pub fn creation_timestamp(object: &Value) -> Option<i64> {
    timestamp::parse(text(object, "creationTimestamp"))
}

/// Returns the time at which the deletion was requested, in seconds since 1970.
#[must_use]
pub fn deletion_timestamp(object: &Value) -> Option<i64> {
    timestamp::parse(text(object, "deletionTimestamp"))
}

/// Returns whether the deletion was requested.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Iterates over the finalizers.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    get(object, "finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Sets the finalizers; without any, removes the field.
pub fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let value = if finalizers.is_empty() {
        Value::Null
    } else {
        finalizers.into()
    };
    set(object, "finalizers", value);
}

fn text_map<'object>(object: &'object Value, key: &str) -> BTreeMap<&'object str, &'object str> {
    get(object, key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect()
}

/// Returns the labels.
#[must_use]
pub fn labels(object: &Value) -> BTreeMap<&str, &str> {
    text_map(object, "labels")
}

/// Returns one label.
#[must_use]
pub fn label<'object>(object: &'object Value, key: &str) -> Option<&'object str> {
    get(object, "labels")?.get(key)?.as_str()
}

/// Returns the annotations.
#[must_use]
pub fn annotations(object: &Value) -> BTreeMap<&str, &str> {
    text_map(object, "annotations")
}

/// Returns one annotation.
#[must_use]
pub fn annotation<'object>(object: &'object Value, key: &str) -> Option<&'object str> {
    get(object, "annotations")?.get(key)?.as_str()
}

/// Sets one annotation, or removes it; without any, removes the field.
pub fn set_annotation(object: &mut Value, key: &str, value: Option<&str>) {
    let metadata = get_mut(object);
    if value.is_none() && metadata.get("annotations").is_none() {
        return;
    }
    let annotations = as_map(metadata.entry("annotations").or_insert(Value::Null));
    match value {
        Some(value) => annotations.insert(key.to_owned(), value.into()),
        None => annotations.remove(key),
    };
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_and_mistyped_fields_read_as_empty() {
        for object in [
            json!(null),
            json!({"metadata": []}),
            json!({"metadata": {"name": 1, "labels": [], "finalizers": {}}}),
        ] {
            assert_eq!(name(&object), "");
            assert_eq!(generation(&object), 0);
            assert!(labels(&object).is_empty());
            assert_eq!(finalizers(&object).count(), 0);
            assert!(!is_deleting(&object));
        }
    }

    #[test]
    fn setters_create_and_remove_fields() {
        let mut object = json!({"metadata": 3});
        set(&mut object, "uid", "u");
        set_annotation(&mut object, "a/b", Some("1"));
        set_finalizers(&mut object, vec!["x/y".into()]);
        set_type(&mut object, "g/v1", "Kind");
        assert_eq!(
            object,
            json!({"apiVersion": "g/v1", "kind": "Kind", "metadata": {
                "uid": "u", "annotations": {"a/b": "1"}, "finalizers": ["x/y"]}})
        );
        set(&mut object, "uid", "");
        set_annotation(&mut object, "a/b", None);
        set_finalizers(&mut object, Vec::new());
        assert_eq!(object["metadata"], json!({}));
    }
}
