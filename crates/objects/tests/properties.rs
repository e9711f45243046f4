//! Parsers and walks on random input: no panic, and the laws that hold for every input.
#![allow(missing_docs, clippy::unwrap_used)]

use portunus_objects::convert::{Conversions, ConvertError};
use portunus_objects::decode::decode;
use portunus_objects::metadata;
use portunus_objects::patch::{JsonPatch, MergePatch};
use portunus_objects::schema::{FieldValidation, Schema};
use portunus_objects::selector::{FieldSelector, LabelSelector, SelectableFields};
use portunus_objects::table::{Columns, JsonPath};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns JSON values with few names, so that paths and patches meet.
fn json_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z/~.-]{0,3}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abn]|name|spec|x/y|~", inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[abn]|name|spec|x~1y|~0|-|0|1|-1|7", 0..4)
        .prop_map(|keys| keys.iter().map(|key| format!("/{key}")).collect())
}

fn operation() -> impl Strategy<Value = Value> {
    (
        "add|remove|replace|move|copy|test|odd",
        path(),
        path(),
        json_value(),
    )
        .prop_map(
            |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
        )
}

fn object_schema() -> Schema {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let item = json!({"type": "object", "properties": {"name": {"type": "string", "default": "d"}, "n": {"type": "integer", "nullable": true}}});
    Schema::parse(&json!({"type": "object", "required": ["spec"], "properties": {
        "a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item},
        "b": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}},
        "n": {"type": "number", "minimum": -1, "maximum": 1, "default": 0.5},
        "spec": free,
        "name": {"type": "string", "enum": ["a", "b"], "nullable": true}}}))
    .unwrap()
}

/// Applies a merge patch as RFC 7386 describes it.
fn rfc_7386(target: Value, patch: &Value) -> Value {
    let Value::Object(fields) = patch else {
        return patch.clone();
    };
    let mut target = match target {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    };
    for (name, value) in fields {
        if value.is_null() {
            target.remove(name);
        } else {
            let before = target.remove(name).unwrap_or_default();
            target.insert(name.clone(), rfc_7386(before, value));
        }
    }
    Value::Object(target)
}

/// Returns a map without lists: what Kubernetes does with nulls inside of lists is its own.
fn merge_patch(value: Value) -> Value {
    fn without_lists(value: Value) -> Value {
        match value {
            Value::Array(items) => items.len().into(),
            Value::Object(map) => map
                .into_iter()
                .map(|(name, value)| (name, without_lists(value)))
                .collect(),
            scalar => scalar,
        }
    }
    match without_lists(value) {
        Value::Object(map) => map.into(),
        other => json!({"a": other}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn parsers_never_panic_on_random_text(text in any::<String>(), dense in "[a-c =!,()<>\\[\\].*?@'\"{}:0-9\\\\-]{0,40}") {
        for text in [text, dense] {
            let _ = decode(text.as_bytes());
            let _ = JsonPatch::parse(text.as_bytes());
            let _ = MergePatch::parse(text.as_bytes());
            let _ = JsonPath::parse(&text).map(|path| path.find(&Value::Null).len());
            let fields = SelectableFields::declare([text.as_str()]);
            let _ = FieldSelector::parse(&text, &fields);
            let _ = LabelSelector::parse(&text);
            let pattern = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": text}}});
            let _ = Schema::parse(&pattern);
            let _ = metadata::generated_name(&text, "abcde");
            let _ = portunus_objects::timestamp::parse(&text);
        }
    }

    #[test]
    fn decoding_agrees_with_serde_json_on_random_values(value in json_value()) {
        let text = value.to_string();
        let decoded = decode(text.as_bytes()).unwrap();
        prop_assert_eq!(&decoded.value, &serde_json::from_str::<Value>(&text).unwrap());
        prop_assert!(decoded.duplicates.is_empty());
    }

    #[test]
    fn label_selector_survives_printing(text in "(!?[ab]|[ab](=|==|!=)[xy]?|[ab] (in|notin) \\([xy](,[xy])?\\)|[ab][<>][0-9])(,(!?[ab]|[ab](=|!=)[xy]))?") {
        let selector = LabelSelector::parse(&text).unwrap();
        let printed = selector.to_string();
        prop_assert_eq!(LabelSelector::parse(&printed).unwrap(), selector);
    }

    #[test]
    fn schema_never_panics_and_pruned_objects_are_stable(value in json_value(), before in json_value()) {
        let schema = object_schema();
        let _ = Schema::parse(&value);
        let _ = schema.validate_update(&value, &before);
        prop_assert!(schema.validate_update(&value, &value).is_empty());
        let mut pruned = value.clone();
        schema.prune(&mut pruned);
        schema.default_values(&mut pruned);
        let once = pruned.clone();
        prop_assert!(schema.prune(&mut pruned).is_empty());
        schema.default_values(&mut pruned);
        prop_assert_eq!(pruned, once);
        let _ = schema.read_value(value.clone(), Vec::new(), FieldValidation::Strict);
        let _ = Columns::default().cells(&value, 0);
    }

    #[test]
    fn merge_patch_agrees_with_rfc_7386_without_lists(document in json_value(), patch in json_value()) {
        let patch = merge_patch(patch);
        let merged = MergePatch::parse(patch.to_string().as_bytes()).unwrap().apply(document.clone());
        prop_assert_eq!(merged, rfc_7386(document, &patch));
    }

    #[test]
    fn json_patch_never_panics_and_agrees_with_the_reference(document in json_value(), operations in prop::collection::vec(operation(), 0..6)) {
        let body = Value::from(operations.clone()).to_string();
        let ours = JsonPatch::parse(body.as_bytes()).unwrap().apply(document.clone());
        // What RFC 6902 accepts must give the same result; Kubernetes accepts more.
        let Ok(reference) = serde_json::from_str::<json_patch::Patch>(&body) else {
            return Ok(());
        };
        let is_root = operations.iter().any(|operation| operation["path"] == "" || operation["from"] == "");
        let is_container = document.is_object() || document.is_array();
        let mut expected = document;
        if !is_root && is_container && json_patch::patch(&mut expected, &reference).is_ok() {
            prop_assert_eq!(ours.unwrap(), expected);
        }
    }

    #[test]
    fn conversion_round_trips_when_both_functions_invert_each_other(spec in json_value()) {
        fn wrap(object: &mut Value) -> Result<(), ConvertError> {
            object["spec"] = json!({"wrapped": object["spec"].take()});
            Ok(())
        }
        fn unwrap(object: &mut Value) -> Result<(), ConvertError> {
            object["spec"] = object["spec"]["wrapped"].take();
            Ok(())
        }
        let conversions = Conversions::hub("g", "v2").version("v1", wrap, unwrap).same_fields("v3");
        let object = json!({"apiVersion": "g/v1", "kind": "K", "spec": spec});
        for through in ["v2", "v3"] {
            let mut converted = object.clone();
            conversions.convert(&mut converted, through).unwrap();
            conversions.convert(&mut converted, "v1").unwrap();
            prop_assert_eq!(&converted, &object);
        }
    }
}
