//! Lists whose items must be unique: sets, and maps identified by key fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Additional, ERRORS_MAX, ListType, Schema};
use crate::field::FieldError;
use crate::place::Place;

impl Schema {
    /// Reports items that occur more than once in sets and list-maps.
    pub(super) fn validate_lists(&self, value: &Value, errors: &mut Vec<FieldError>) {
        walk(value, self, &Place::Root, errors);
    }
}

fn walk(value: &Value, schema: &Schema, place: &Place<'_>, errors: &mut Vec<FieldError>) {
    if errors.len() >= ERRORS_MAX {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(schema) = schema.properties.get(name) {
                    walk(value, schema, &Place::Field(place, name), errors);
                } else if let Some(Additional::Schema(schema)) = &schema.additional {
                    walk(value, schema, &Place::Key(place, name), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in repeated(items.iter()).into_iter().take(ERRORS_MAX) {
                        let place = Place::Item(place, index);
                        errors.push(FieldError::duplicate(&place.path(), items[index].clone()));
                    }
                }
                ListType::Map(keys) => errors.extend(check_map(items, keys, place)),
            }
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    walk(item, schema, &Place::Item(place, index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], keys: &[String], place: &Place<'_>) -> Vec<FieldError> {
    let not_a_map = |item: &Value| !item.is_object() && !item.is_null();
    if let Some(index) = items.iter().position(not_a_map) {
        let path = Place::Item(place, index).path();
        let text = "must be an object for an array of list-type map";
        return vec![FieldError::invalid(&path, items[index].clone(), text)];
    }
    let identities: Vec<Value> = items.iter().map(|item| identity(item, keys)).collect();
    repeated(identities.iter())
        .into_iter()
        .take(ERRORS_MAX)
        .map(|index| {
            let path = Place::Item(place, index).path();
            FieldError::duplicate(&path, identities[index].clone())
        })
        .collect()
}

/// Returns the key fields of an item.
pub(super) fn identity(item: &Value, keys: &[String]) -> Value {
    let fields: Map<String, Value> = keys
        .iter()
        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
        .collect();
    Value::Object(fields)
}

/// Returns the position of the second occurrence of each value that occurs more than once.
fn repeated<'value>(values: impl Iterator<Item = &'value Value>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut positions = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            positions.push(index);
        }
    }
    positions
}
