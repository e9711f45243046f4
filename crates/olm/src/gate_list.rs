//! Reads and writes the two places of a gate: the old field and the list.

use serde_json::{Map, Value, json};

/// The name of the entry that mirrors the old field, and of the field itself.
pub const COPIED_CSVS_GATE: &str = "disableCopiedCSVs";

/// An entry of the list of gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateEntry {
    /// The position in the list.
    pub index: usize,
    /// The name of the gate.
    pub name: String,
    /// The value.
    pub value: bool,
}

/// Returns the entries of `spec.features.gates` that have a name and a value.
#[must_use]
pub fn gates(object: &Value) -> Vec<GateEntry> {
    entries(object.pointer("/spec/features/gates"))
}

pub(crate) fn entries(list: Option<&Value>) -> Vec<GateEntry> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, entry)| {
            Some(GateEntry {
                index,
                name: entry.get("name")?.as_str()?.to_owned(),
                value: entry.get("value")?.as_bool()?,
            })
        })
        .collect()
}

/// Returns `spec.features.disableCopiedCSVs`.
#[must_use]
pub fn old_field(object: &Value) -> Option<bool> {
    object
        .pointer("/spec/features/disableCopiedCSVs")?
        .as_bool()
}

/// Returns the first entry that mirrors the old field.
pub(crate) fn mirror_entry(object: &Value) -> Option<GateEntry> {
    let mut entries = gates(object).into_iter();
    entries.find(|entry| entry.name == COPIED_CSVS_GATE)
}

/// Sets the value of the entry that mirrors the old field, or removes the entry. A list without
/// entries is removed.
pub(crate) fn set_mirror_entry(object: &mut Value, value: Option<bool>) {
    let position = mirror_entry(object).map(|entry| entry.index);
    if value.is_none() && position.is_none() {
        return;
    }
    let Some(features) = features_mut(object) else {
        return;
    };
    let list = features.entry("gates").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else {
        return;
    };
    match (position, value) {
        (Some(index), Some(value)) => list[index]["value"] = value.into(),
        (None, Some(value)) => list.push(json!({"name": COPIED_CSVS_GATE, "value": value})),
        (Some(index), None) => {
            list.remove(index);
        }
        (None, None) => {}
    }
    if list.is_empty() {
        features.remove("gates");
    }
}

/// Returns `spec.features` for changes, created if missing; `None` if a part is no map.
pub(crate) fn features_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let mut value = object;
    for name in ["spec", "features"] {
        let child = value.as_object_mut()?.entry(name).or_insert(Value::Null);
        if child.is_null() {
            *child = json!({});
        }
        value = child;
    }
    value.as_object_mut()
}
