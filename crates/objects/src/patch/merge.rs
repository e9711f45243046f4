//! JSON merge patch, RFC 7386, with the details of the library that Kubernetes uses.

use serde_json::{Map, Value};

use crate::decode::{Decoded, decode};
use crate::patch::PatchError;

/// A merge patch: a map whose nulls remove fields.
#[derive(Debug, Clone, PartialEq)]
pub struct MergePatch {
    fields: Map<String, Value>,
    duplicates: Vec<String>,
}

impl MergePatch {
    /// Parses the body of a request.
    pub fn parse(body: &[u8]) -> Result<MergePatch, PatchError> {
        let Ok(Decoded { value, duplicates }) = decode(body) else {
            return Err(PatchError::Malformed("invalid JSON patch".to_owned()));
        };
        match value {
            Value::Object(fields) => Ok(MergePatch { fields, duplicates }),
            _ => Err(PatchError::Malformed("invalid JSON patch".to_owned())),
        }
    }

    /// Returns the texts about repeated fields, for strict field validation.
    #[must_use]
    pub fn duplicates(&self) -> &[String] {
        &self.duplicates
    }

    /// Returns the document with the patch applied.
    #[must_use]
    pub fn apply(&self, document: Value) -> Value {
        merge(document, Value::Object(self.fields.clone()))
    }
}

fn merge(current: Value, patch: Value) -> Value {
    match (current, patch) {
        (Value::Object(mut current), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    current.remove(&name);
                    continue;
                }
                let before = current.remove(&name).unwrap_or(Value::Null);
                current.insert(name, merge(before, value));
            }
            Value::Object(current)
        }
        // A list that replaces a map keeps its nulls.
        (Value::Object(_), patch) => patch,
        (_, patch) => without_nulls(patch),
    }
}

/// Removes the fields of a new value that are null; nulls in lists stay.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn apply(document: Value, patch: Value) -> Value {
        MergePatch::parse(patch.to_string().as_bytes())
            .unwrap()
            .apply(document)
    }

    #[test]
    fn merge_sets_replaces_and_removes() {
        let cases = [
            (
                json!({"a": 1, "b": {"c": 1, "d": 2}}),
                json!({"a": null, "b": {"c": 3}}),
                json!({"b": {"c": 3, "d": 2}}),
            ),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (
                json!({"a": 1}),
                json!({"a": {"b": null, "c": {"d": null}}}),
                json!({"a": {"c": {}}}),
            ),
            (
                json!({}),
                json!({"a": [null, {"b": null}]}),
                json!({"a": [null, {}]}),
            ),
            (
                json!({"a": {"x": 1}}),
                json!({"a": [{"b": null}]}),
                json!({"a": [{"b": null}]}),
            ),
            (
                json!({"a": null}),
                json!({"a": {"b": null}}),
                json!({"a": {}}),
            ),
        ];
        for (document, patch, result) in cases {
            assert_eq!(apply(document, patch), result);
        }
    }

    #[test]
    fn body_that_is_no_map_is_refused() {
        for body in ["", "[]", "null", "1", "{"] {
            let error = MergePatch::parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "invalid JSON patch");
            assert_eq!(error.status().code, 400);
        }
    }

    #[test]
    fn repeated_fields_are_reported() {
        let patch = MergePatch::parse(br#"{"a": {"b": 1, "b": 2}}"#).unwrap();
        assert_eq!(patch.duplicates(), [r#"duplicate field "a.b""#]);
    }
}
