//! Field selectors: `metadata.name=a,status.phase!=Done`.

use std::fmt;

use serde_json::Value;
use thiserror::Error;

use crate::metadata;
use crate::table::JsonPath;

/// A text that is no field selector, or one with a field that cannot be selected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldSelectorError {
    /// A term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator {
        /// The whole text.
        selector: String,
        /// The term without an operator.
        term: String,
    },
    /// A backslash is followed by a letter that is not escaped.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    InvalidEscape(String),
    /// A comma or equals sign in a value is not escaped. Kubernetes prints its code point.
    #[error("invalid field selector: unescaped character in value: {code}", code = *.0 as u32)]
    Unescaped(char),
    /// The resource does not declare this field.
    #[error("field label not supported: {0}")]
    UnknownField(String),
}

/// The fields of a resource that can be selected: `metadata.name`, `metadata.namespace` and those
/// that it declares.
#[derive(Debug, Clone, Default)]
pub struct SelectableFields {
    declared: Vec<(String, JsonPath)>,
}

impl SelectableFields {
    /// Declares fields by their path, such as `spec.color`. A path that is no path of fields is
    /// ignored.
    #[must_use]
    pub fn declare<'path>(paths: impl IntoIterator<Item = &'path str>) -> SelectableFields {
        let declared = paths
            .into_iter()
            .map(|path| path.trim_start_matches('.'))
            .filter_map(|path| Some((path.to_owned(), JsonPath::parse(&format!(".{path}")).ok()?)))
            .collect();
        SelectableFields { declared }
    }

    fn knows(&self, field: &str) -> bool {
        matches!(field, "metadata.name" | "metadata.namespace")
            || self.declared.iter().any(|(path, _)| path == field)
    }

    /// Returns the text of a field of an object; empty if missing.
    fn value(&self, object: &Value, field: &str) -> String {
        match field {
            "metadata.name" => metadata::name(object).to_owned(),
            "metadata.namespace" => metadata::namespace(object).to_owned(),
            _ => {
                let declared = self.declared.iter().find(|(path, _)| path == field);
                let found = declared.and_then(|(_, path)| path.find(object).into_iter().next());
                match found {
                    Some(Value::String(text)) => text.clone(),
                    Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                    _ => String::new(),
                }
            }
        }
    }
}

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The path of the field.
    pub field: String,
    /// Whether the field must have the value, or must not.
    pub is_equal: bool,
    /// The value to compare with.
    pub value: String,
}

/// A list of conditions that an object must all meet; an empty list matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Parses the text form, and refuses fields that cannot be selected.
    pub fn parse(
        text: &str,
        fields: &SelectableFields,
    ) -> Result<FieldSelector, FieldSelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, is_equal, value)) = split_term(term) else {
                return Err(FieldSelectorError::NoOperator {
                    selector: text.to_owned(),
                    term: term.to_owned(),
                });
            };
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                is_equal,
                value: unescape(value)?,
            });
        }
        for requirement in &requirements {
            if !fields.knows(&requirement.field) {
                let field = requirement.field.clone();
                return Err(FieldSelectorError::UnknownField(field));
            }
        }
        Ok(FieldSelector { requirements })
    }

    /// Returns the conditions.
    #[must_use]
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Returns whether every object matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the only value that a field may have, if there is one: a list by
    /// `metadata.name=a` reads one object.
    #[must_use]
    pub fn exact_value(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.is_equal && requirement.field == field)
            .map(|requirement| requirement.value.as_str())
    }

    /// Returns whether an object meets all conditions.
    #[must_use]
    pub fn matches(&self, object: &Value, fields: &SelectableFields) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = fields.value(object, &requirement.field);
            (value == requirement.value) == requirement.is_equal
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if requirement.is_equal { "=" } else { "!=" };
            let value = escape(&requirement.value);
            write!(f, "{comma}{}{operator}{value}", requirement.field)?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits a term at its first operator: field, whether it must be equal, value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        for (operator, is_equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = term[at..].strip_prefix(operator) {
                return Some((&term[..at], is_equal, value));
            }
        }
    }
    None
}

fn unescape(text: &str) -> Result<String, FieldSelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                other => {
                    let sequence = std::iter::once('\\').chain(other).collect();
                    return Err(FieldSelectorError::InvalidEscape(sequence));
                }
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(letter)),
            letter => value.push(letter),
        }
    }
    Ok(value)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_compare_declared_fields() {
        let fields = SelectableFields::declare(["spec.color", ".spec.size"]);
        let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"color": "x,y=z", "size": 3}});
        let cases = [
            ("", true),
            (",", true),
            ("metadata.name=a", true),
            ("metadata.name==b", false),
            ("metadata.name!=b,metadata.namespace=n", true),
            (r"spec.color=x\,y\=z", true),
            ("spec.size=3", true),
            ("spec.size!=3", false),
        ];
        for (text, matches) in cases {
            let selector = FieldSelector::parse(text, &fields).unwrap();
            assert_eq!(selector.matches(&object, &fields), matches, "{text}");
        }
    }

    #[test]
    fn malformed_selectors_have_the_texts_of_kubernetes() {
        let cases = [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            (
                r"metadata.name=\a",
                r"invalid field selector: invalid escape sequence: \a",
            ),
            (
                "metadata.name=\\",
                "invalid field selector: invalid escape sequence: \\",
            ),
            (
                "metadata.name=a=b",
                "invalid field selector: unescaped character in value: 61",
            ),
            ("spec.x=1", "field label not supported: spec.x"),
        ];
        for (text, error) in cases {
            let fields = SelectableFields::default();
            assert_eq!(
                FieldSelector::parse(text, &fields).unwrap_err().to_string(),
                error
            );
        }
    }

    #[test]
    fn exact_value_is_found_and_selectors_are_printed_escaped() {
        let fields = SelectableFields::default();
        let selector =
            FieldSelector::parse(r"metadata.namespace!=x,metadata.name=a\,b", &fields).unwrap();
        assert_eq!(selector.exact_value("metadata.name"), Some("a,b"));
        assert_eq!(selector.exact_value("metadata.namespace"), None);
        assert_eq!(
            selector.to_string(),
            r"metadata.name=a\,b,metadata.namespace!=x"
        );
    }
}
