//! Conversion between v1 and v2alpha1.
//!
//! The hub is v2alpha1, because it can show everything. v1 has no list of gates; its objects
//! carry the list in the annotation [`GATES_ANNOTATION`], so that a client that knows only v1 reads
//! and writes an object without losing gates. In v1 the old field decides about its own entry: the
//! entry is made from the field on the way to v2alpha1.

use portunus_objects::convert::{Conversions, ConvertError};
use portunus_objects::metadata;
use serde_json::{Value, json};

use crate::api::{GROUP, V1, V2ALPHA1};
use crate::gate_list::{COPIED_CSVS_GATE, entries, features_mut, old_field, set_mirror_entry};

/// The annotation of a v1 object with the list of gates as JSON.
pub const GATES_ANNOTATION: &str = "operators.coreos.com/feature-gates";

/// Returns the conversions of OLMConfig.
#[must_use]
pub fn conversions() -> Conversions {
    Conversions::hub(GROUP, V2ALPHA1).version(V1, v1_to_hub, hub_to_v1)
}

fn v1_to_hub(object: &mut Value) -> Result<(), ConvertError> {
    // A list that cannot be read stays where it is; a write with it is refused.
    if let Some(list) = annotated_gates(object) {
        metadata::set_annotation(object, GATES_ANNOTATION, None);
        let is_empty = list.as_array().is_none_or(Vec::is_empty);
        if !is_empty && let Some(features) = features_mut(object) {
            features.insert("gates".to_owned(), list);
        }
    }
    let field = old_field(object);
    set_mirror_entry(object, field);
    Ok(())
}

fn hub_to_v1(object: &mut Value) -> Result<(), ConvertError> {
    let list = object
        .pointer_mut("/spec/features")
        .and_then(Value::as_object_mut)
        .and_then(|features| features.remove("gates"));
    let Some(list) = list else {
        return Ok(());
    };
    // The entry of the old field alone is made from the field again.
    let shows_only_the_field = match old_field(object) {
        Some(value) => list == json!([{"name": COPIED_CSVS_GATE, "value": value}]),
        None => list.as_array().is_some_and(Vec::is_empty),
    };
    if !shows_only_the_field {
        metadata::set_annotation(object, GATES_ANNOTATION, Some(&list.to_string()));
    }
    Ok(())
}

/// Returns the list in the annotation, if it is a list of names and values and nothing else.
fn annotated_gates(object: &Value) -> Option<Value> {
    let text = metadata::annotation(object, GATES_ANNOTATION)?;
    let list = portunus_objects::decode::decode(text.as_bytes())
        .ok()?
        .value;
    let items = list.as_array()?;
    let has_two_fields = |item: &Value| item.as_object().is_some_and(|map| map.len() == 2);
    let is_valid = entries(Some(&list)).len() == items.len() && items.iter().all(has_two_fields);
    is_valid.then_some(list)
}

/// Copies the annotation with the gates from the object before to a v1 object that replaces it
/// without the annotation: a client that knows only v1 cannot send gates. An annotation with an
/// empty list removes the gates.
pub fn keep_hidden_gates(after: &mut Value, before: &Value) {
    if metadata::annotation(after, GATES_ANNOTATION).is_none()
        && let Some(text) = metadata::annotation(before, GATES_ANNOTATION)
    {
        metadata::set_annotation(after, GATES_ANNOTATION, Some(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(object: &Value, version: &str) -> Value {
        let mut converted = object.clone();
        conversions().convert(&mut converted, version).unwrap();
        converted
    }

    fn v1(features: Value, annotation: Option<&str>) -> Value {
        let mut object = json!({"apiVersion": "operators.coreos.com/v1", "kind": "OLMConfig",
            "metadata": {"name": "cluster"}, "spec": {"features": features}});
        metadata::set_annotation(&mut object, GATES_ANNOTATION, annotation);
        object
    }

    #[test]
    fn field_alone_needs_no_annotation() {
        let object = v1(json!({"disableCopiedCSVs": true}), None);
        let hub = convert(&object, V2ALPHA1);
        assert_eq!(
            hub["spec"]["features"],
            json!({"disableCopiedCSVs": true, "gates": [{"name": "disableCopiedCSVs", "value": true}]})
        );
        assert_eq!(convert(&hub, V1), object);
    }

    #[test]
    fn field_of_v1_decides_about_its_entry() {
        let list = r#"[{"name":"x","value":true},{"name":"disableCopiedCSVs","value":true}]"#;
        let changed = convert(
            &v1(json!({"disableCopiedCSVs": false}), Some(list)),
            V2ALPHA1,
        );
        assert_eq!(
            changed["spec"]["features"]["gates"],
            json!([{"name": "x", "value": true}, {"name": "disableCopiedCSVs", "value": false}])
        );
        let cleared = convert(&v1(json!({}), Some(list)), V2ALPHA1);
        assert_eq!(
            cleared["spec"]["features"]["gates"],
            json!([{"name": "x", "value": true}])
        );
    }

    #[test]
    fn malformed_annotation_stays_where_it_is() {
        for text in [
            "x",
            "{}",
            r#"[{"name": "x"}]"#,
            r#"[{"name":"x","value":true,"z":1}]"#,
            "[1]",
        ] {
            let object = v1(json!({}), Some(text));
            let hub = convert(&object, V2ALPHA1);
            assert_eq!(metadata::annotation(&hub, GATES_ANNOTATION), Some(text));
            assert_eq!(convert(&hub, V1), object);
        }
    }

    #[test]
    fn replacement_without_the_annotation_keeps_the_gates() {
        let list = r#"[{"name":"x","value":true}]"#;
        let before = v1(json!({}), Some(list));
        let mut after = v1(json!({"disableCopiedCSVs": true}), None);
        keep_hidden_gates(&mut after, &before);
        assert_eq!(metadata::annotation(&after, GATES_ANNOTATION), Some(list));
        let mut emptied = v1(json!({}), Some("[]"));
        keep_hidden_gates(&mut emptied, &before);
        assert_eq!(convert(&emptied, V2ALPHA1)["spec"]["features"], json!({}));
    }
}
