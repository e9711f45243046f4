//! JSON as Go's `encoding/json` writes etcd's structures: fields in declared order, empty ones
//! left out, bytes as base64, and `<`, `>`, `&` escaped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::{Display, Write};

/// An object being written, field by field. Methods named `…_omit_empty` leave a field out when
/// it has its zero value.
#[derive(Debug, Default)]
pub struct Object(String);

impl Object {
    /// Any JSON text as a field.
    pub fn raw(mut self, name: &str, json: impl Display) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write!(self.0, "\"{name}\":{json}");
        self
    }

    /// Any JSON text, if there is one.
    pub fn raw_omit_empty(self, name: &str, json: Option<impl Display>) -> Self {
        match json {
            Some(json) => self.raw(name, json),
            None => self,
        }
    }

    /// A number, if it is not zero.
    pub fn number_omit_empty<N: Display + Default + PartialEq>(
        self,
        name: &str,
        number: N,
    ) -> Self {
        let given = (number != N::default()).then_some(number);
        self.raw_omit_empty(name, given)
    }

    /// `true`, or nothing.
    pub fn bool_omit_empty(self, name: &str, value: bool) -> Self {
        self.raw_omit_empty(name, value.then_some(true))
    }

    /// Text.
    pub fn text(self, name: &str, text: &str) -> Self {
        self.raw(name, string(text))
    }

    /// Text, if it is not empty.
    pub fn text_omit_empty(self, name: &str, text: &str) -> Self {
        let given = (!text.is_empty()).then(|| string(text));
        self.raw_omit_empty(name, given)
    }

    /// Bytes as base64, if there are any.
    pub fn bytes_omit_empty(self, name: &str, bytes: &[u8]) -> Self {
        let given = (!bytes.is_empty()).then(|| base64(bytes));
        self.raw_omit_empty(name, given)
    }

    /// A list, if it is not empty.
    pub fn list_omit_empty(self, name: &str, items: impl IntoIterator<Item = String>) -> Self {
        let list = array(items);
        let given = (list != "[]").then_some(list);
        self.raw_omit_empty(name, given)
    }

    /// The whole object.
    pub fn end(self) -> String {
        format!("{{{}}}", self.0)
    }
}

/// A list.
pub fn array(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    format!("[{}]", items.join(","))
}

/// A list, or `null` for one that was never begun.
pub fn array_or_null(items: impl IntoIterator<Item = String>) -> String {
    let list = array(items);
    if list == "[]" {
        "null".to_owned()
    } else {
        list
    }
}

/// Bytes as a JSON string.
pub fn base64(bytes: &[u8]) -> String {
    format!("\"{}\"", STANDARD.encode(bytes))
}

/// Text as a JSON string.
pub fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let escape = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\x08' => "\\b",
            '\x0c' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
                continue;
            }
            _ => {
                quoted.push(c);
                continue;
            }
        };
        quoted.push_str(escape);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_omitted_and_order_is_kept() {
        let object = Object::default()
            .number_omit_empty("revision", 0_i64)
            .number_omit_empty("count", 2_i64)
            .bytes_omit_empty("key", b"a")
            .bool_omit_empty("more", false)
            .list_omit_empty("kvs", [])
            .text("version", "");
        assert_eq!(object.end(), r#"{"count":2,"key":"YQ==","version":""}"#);
    }

    #[test]
    fn text_is_escaped_as_in_go() {
        assert_eq!(
            string("a\"\\<b>&\u{1}\n\u{2028}ä"),
            "\"a\\\"\\\\\\u003cb\\u003e\\u0026\\u0001\\n\\u2028ä\""
        );
    }
}
