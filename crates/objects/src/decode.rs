//! JSON text of a client to a value, with limits and with repeated fields.
//!
//! `serde_json` keeps the last of two fields with the same name without a notice. Here they are
//! collected, because strict field validation refuses them. Nesting is limited to
//! [`DEPTH_MAX`], so neither decoding nor any later walk over a value can exhaust the stack.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use thiserror::Error;

use crate::go_format;
use crate::place::{Place, REPORTS_MAX};

/// The deepest nesting of lists and maps in a document. Kubernetes allows 10,000.
pub const DEPTH_MAX: usize = 127;

/// A text that is not JSON, or JSON that is not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The text is not JSON, or is nested too deeply.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    /// The document is not a map.
    #[error("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")]
    NotAnObject {
        /// The type of the document.
        found: &'static str,
    },
}

/// A decoded document.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The value; of repeated fields, the last.
    pub value: Value,
    /// The texts about repeated fields, such as `duplicate field "spec.x"`.
    pub duplicates: Vec<String>,
}

/// Decodes a document.
pub fn decode(text: &[u8]) -> Result<Decoded, DecodeError> {
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Node {
        place: Place::Root,
        duplicates: &duplicates,
    }
    .deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Decoded {
        value,
        duplicates: duplicates.into_inner(),
    })
}

/// Decodes a document that must be a map, as every API object is.
pub fn decode_object(text: &[u8]) -> Result<Decoded, DecodeError> {
    let decoded = decode(text)?;
    if !decoded.value.is_object() {
        let found = type_name(&decoded.value);
        return Err(DecodeError::NotAnObject { found });
    }
    Ok(decoded)
}

/// Returns the name of a value's type as JSON errors call it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns how deeply lists and maps are nested; 0 for a scalar.
#[must_use]
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

struct Node<'path> {
    place: Place<'path>,
    duplicates: &'path RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node {
            place: Place::Item(&self.place, list.len()),
            duplicates: self.duplicates,
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let place = Place::Field(&self.place, &name);
            if map.contains_key(&name) {
                let mut duplicates = self.duplicates.borrow_mut();
                let text = format!("duplicate field {}", go_format::quote(&place.text()));
                if duplicates.len() < REPORTS_MAX && !duplicates.contains(&text) {
                    duplicates.push(text);
                }
            }
            let value = fields.next_value_seed(Node {
                place,
                duplicates: self.duplicates,
            })?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeated_fields_are_reported_with_their_path_and_the_last_one_wins() {
        let text =
            br#"{"a": 1, "spec": {"x": 1, "x": 2, "x": 3, "l": [{"b": 1, "b": 2}]}, "a": 2}"#;
        let decoded = decode_object(text).unwrap();
        assert_eq!(
            decoded.value,
            json!({"a": 2, "spec": {"x": 3, "l": [{"b": 2}]}})
        );
        assert_eq!(
            decoded.duplicates,
            [
                r#"duplicate field "spec.x""#,
                r#"duplicate field "spec.l[0].b""#,
                r#"duplicate field "a""#
            ]
        );
    }

    #[test]
    fn decoding_agrees_with_serde_json() {
        let text = r#"{"a": [null, true, -1, 18446744073709551615, 1.5e3, "x\u0041"], "b": {}}"#;
        let decoded = decode(text.as_bytes()).unwrap();
        assert_eq!(decoded.value, serde_json::from_str::<Value>(text).unwrap());
        assert!(decoded.duplicates.is_empty());
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(
            depth(&decode(nested(DEPTH_MAX).as_bytes()).unwrap().value),
            DEPTH_MAX
        );
        let error = decode(nested(DEPTH_MAX + 1).as_bytes()).unwrap_err();
        assert!(
            error.to_string().starts_with("recursion limit exceeded"),
            "{error}"
        );
        assert!(decode("[".repeat(3 << 20).as_bytes()).is_err());
        assert!(decode("{\"a\":".repeat(500_000).as_bytes()).is_err());
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "",
            "{",
            "{}x",
            "{\"a\" 1}",
            "nul",
            "\"\u{1}\"",
            "[1,]",
            "1e999",
        ] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
        assert!(decode(b"{\"a\": \"\xff\"}").is_err());
        assert_eq!(
            decode_object(b"[1]").unwrap_err().to_string(),
            "json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }

    #[test]
    fn reported_repetitions_are_limited() {
        let mut text = String::from("{");
        for index in 0..REPORTS_MAX + 10 {
            text.push_str(&format!("\"k{index}\":1,\"k{index}\":2,"));
        }
        text.push_str("\"end\":0}");
        assert_eq!(
            decode(text.as_bytes()).unwrap().duplicates.len(),
            REPORTS_MAX
        );
    }
}
