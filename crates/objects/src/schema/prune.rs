//! Pruning: removes what a schema does not name.

use serde_json::Value;

use super::{Additional, Schema};
use crate::place::{Place, REPORTS_MAX};

fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

impl Schema {
    /// Removes the unknown fields of an object and returns the paths of at most 100, sorted. `apiVersion`,
    /// `kind` and `metadata` of the object itself are always known.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune(
            object,
            Some(self),
            Context::Resource,
            &Place::Root,
            &mut unknown,
        );
        unknown.sort();
        unknown
    }
}

/// What the parent of a value says about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    /// The object itself.
    Resource,
    /// An item of a list that preserves unknown fields.
    Preserved,
    Other,
}

fn prune(
    value: &mut Value,
    schema: Option<&Schema>,
    context: Context,
    place: &Place<'_>,
    unknown: &mut Vec<String>,
) {
    let is_resource =
        context == Context::Resource || schema.is_some_and(|schema| schema.is_embedded_resource);
    let preserves = context == Context::Preserved
        || schema.is_some_and(|schema| schema.preserves_unknown_fields);
    if preserves && schema.is_none() {
        return;
    }
    match value {
        Value::Object(map) => map.retain(|name, value| {
            if is_resource && is_meta_field(name) {
                return true;
            }
            let place = Place::Field(place, name);
            let known = schema.and_then(|schema| schema.field(name));
            let is_allowed = schema
                .is_some_and(|schema| matches!(schema.additional, Some(Additional::Allowed(_))));
            if known.is_some() || is_allowed {
                prune(value, known, Context::Other, &place, unknown);
                return true;
            }
            if !preserves && unknown.len() < REPORTS_MAX {
                unknown.push(place.text());
            }
            preserves
        }),
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            let context = if preserves {
                Context::Preserved
            } else {
                Context::Other
            };
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, schema, context, &Place::Item(place, index), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_removed_and_reported() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object"}}},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {}}}}}}))
        .unwrap();
        let mut object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "odd": 1}, "other": 1,
            "spec": {"x": 1, "list": [{"a": "1", "b": 2}], "map": {"k": {"x": "1", "y": 2}},
                "free": {"any": {"thing": 1}, "known": {"z": 1}},
                "pod": {"kind": "P", "metadata": {"name": "n"}, "junk": 1}}});
        assert_eq!(
            schema.prune(&mut object),
            [
                "other",
                "spec.free.known.z",
                "spec.list[0].b",
                "spec.map.k.y",
                "spec.pod.junk",
                "spec.x"
            ]
        );
        assert_eq!(
            object,
            json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "odd": 1},
                "spec": {"list": [{"a": "1"}], "map": {"k": {"x": "1"}},
                    "free": {"any": {"thing": 1}, "known": {}},
                    "pod": {"kind": "P", "metadata": {"name": "n"}}}})
        );
    }

    #[test]
    fn reported_fields_are_limited() {
        let schema = Schema::parse(&json!({"type": "object"})).unwrap();
        let mut object = json!({});
        for index in 0..2 * REPORTS_MAX {
            object[index.to_string()] = json!(1);
        }
        assert_eq!(schema.prune(&mut object).len(), REPORTS_MAX);
        assert_eq!(object, json!({}));
    }

    #[test]
    fn pruning_twice_changes_nothing() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}})).unwrap();
        let mut object = json!({"a": [{"x": 1}, [{"y": 1}]], "b": 1});
        assert_eq!(schema.prune(&mut object), ["a[0].x", "a[1][0].y", "b"]);
        assert!(schema.prune(&mut object).is_empty());
    }
}
