//! Errors about one field of an object, with the texts of Kubernetes.
//!
//! A [`Path`] names the field, a [`FieldError`] says what is wrong with its value. A list of them
//! becomes the causes and the message of a `Status` with the reason Invalid.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::go_format;

/// The path of a field, such as `spec.gates[0].name`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// The path of the whole object.
    #[must_use]
    pub fn root() -> Path {
        Path::default()
    }

    /// Returns the path of a field of the whole object.
    #[must_use]
    pub fn new(name: &str) -> Path {
        Path(name.to_owned())
    }

    /// Returns the path of a field of this value.
    #[must_use]
    pub fn child(&self, name: &str) -> Path {
        if self.0.is_empty() {
            return Path(name.to_owned());
        }
        Path(format!("{}.{name}", self.0))
    }

    /// Returns the path of an item of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Path {
        Path(format!("{}[{index}]", self.0))
    }

    /// Returns the path of a value of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Path {
        Path(format!("{}[{key}]", self.0))
    }

    pub(crate) fn from_text(text: String) -> Path {
        Path(text)
    }

    /// Returns whether this is the path of the whole object.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

/// Formats the path; the whole object is `<nil>`, as in Kubernetes.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// The kind of a field error, which is also the reason of a status cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldErrorType {
    /// A value refers to something that does not exist.
    NotFound,
    /// A required value is missing.
    Required,
    /// A value that must be unique occurs twice.
    Duplicate,
    /// A value is malformed or out of range.
    Invalid,
    /// A value is not one of an enumeration.
    NotSupported,
    /// A value is not allowed under these conditions.
    Forbidden,
    /// A text is too long.
    TooLong,
    /// A list has too many items.
    TooMany,
    /// A list has too few items.
    TooFew,
    /// A value has the wrong type.
    TypeInvalid,
    /// The validation itself failed.
    Internal,
}

impl FieldErrorType {
    /// Returns the reason of the status cause.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            FieldErrorType::NotFound => "FieldValueNotFound",
            FieldErrorType::Required => "FieldValueRequired",
            FieldErrorType::Duplicate => "FieldValueDuplicate",
            FieldErrorType::Invalid => "FieldValueInvalid",
            FieldErrorType::NotSupported => "FieldValueNotSupported",
            FieldErrorType::Forbidden => "FieldValueForbidden",
            FieldErrorType::TooLong => "FieldValueTooLong",
            FieldErrorType::TooMany => "FieldValueTooMany",
            FieldErrorType::TooFew => "FieldValueTooFew",
            FieldErrorType::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorType::Internal => "InternalError",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            FieldErrorType::NotFound => "Not found",
            FieldErrorType::Required => "Required value",
            FieldErrorType::Duplicate => "Duplicate value",
            FieldErrorType::Invalid | FieldErrorType::TypeInvalid => "Invalid value",
            FieldErrorType::NotSupported => "Unsupported value",
            FieldErrorType::Forbidden => "Forbidden",
            FieldErrorType::TooLong => "Too long",
            FieldErrorType::TooMany => "Too many",
            FieldErrorType::TooFew => "Too few",
            FieldErrorType::Internal => "Internal error",
        }
    }
}

/// What is wrong with the value of one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// The kind of error.
    pub kind: FieldErrorType,
    /// The path of the field.
    pub field: Path,
    /// The value that was found, if the text shows it.
    pub bad_value: Option<Value>,
    /// The rest of the text; may be empty.
    pub detail: String,
}

impl FieldError {
    fn new(kind: FieldErrorType, field: &Path, bad_value: Option<Value>, detail: &str) -> Self {
        FieldError {
            kind,
            field: field.clone(),
            bad_value,
            detail: detail.to_owned(),
        }
    }

    /// A required value is missing.
    #[must_use]
    pub fn required(field: &Path, detail: &str) -> FieldError {
        FieldError::new(FieldErrorType::Required, field, None, detail)
    }

    /// A value is malformed or out of range.
    #[must_use]
    pub fn invalid(field: &Path, value: impl Into<Value>, detail: &str) -> FieldError {
        FieldError::new(FieldErrorType::Invalid, field, Some(value.into()), detail)
    }

    /// A value has the wrong type.
    #[must_use]
    pub fn type_invalid(field: &Path, value: impl Into<Value>, detail: &str) -> FieldError {
        let value = Some(value.into());
        FieldError::new(FieldErrorType::TypeInvalid, field, value, detail)
    }

    /// A value that must be unique occurs twice.
    #[must_use]
    pub fn duplicate(field: &Path, value: impl Into<Value>) -> FieldError {
        FieldError::new(FieldErrorType::Duplicate, field, Some(value.into()), "")
    }

    /// A value refers to something that does not exist.
    #[must_use]
    pub fn not_found(field: &Path, value: impl Into<Value>) -> FieldError {
        FieldError::new(FieldErrorType::NotFound, field, Some(value.into()), "")
    }

    /// A value is not one of the supported values.
    #[must_use]
    pub fn not_supported(
        field: &Path,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> FieldError {
        let quoted: Vec<String> = supported
            .into_iter()
            .map(|value| go_format::quote(value.as_ref()))
            .collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        let value = Some(value.into());
        FieldError::new(FieldErrorType::NotSupported, field, value, &detail)
    }

    /// A value is not allowed under these conditions.
    #[must_use]
    pub fn forbidden(field: &Path, detail: &str) -> FieldError {
        FieldError::new(FieldErrorType::Forbidden, field, None, detail)
    }

    /// A text has more than `bytes_max` bytes.
    #[must_use]
    pub fn too_long(field: &Path, bytes_max: usize) -> FieldError {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {bytes_max} {unit}");
        FieldError::new(FieldErrorType::TooLong, field, None, &detail)
    }

    /// A list has `count` items, more than `count_max`.
    #[must_use]
    pub fn too_many(field: &Path, count: usize, count_max: usize) -> FieldError {
        let unit = if count_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {count_max} {unit}");
        FieldError::new(FieldErrorType::TooMany, field, Some(count.into()), &detail)
    }

    /// The validation itself failed.
    #[must_use]
    pub fn internal(field: &Path, detail: &str) -> FieldError {
        FieldError::new(FieldErrorType::Internal, field, None, detail)
    }

    /// Returns the text without the path.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if let Some(value) = &self.bad_value {
            text.push_str(": ");
            text.push_str(&go_format::bad_value(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Joins the texts of several errors as Kubernetes does: repeated texts once, more than one text
/// in brackets.
#[must_use]
pub fn join_errors<E: fmt::Display>(errors: &[E]) -> String {
    let mut seen = BTreeSet::new();
    let mut texts = Vec::new();
    for error in errors {
        let text = error.to_string();
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    if texts.len() == 1 {
        return texts.remove(0);
    }
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn path_formats_children_indices_and_keys() {
        let path = Path::new("spec").child("gates").index(2).child("name");
        assert_eq!(path.to_string(), "spec.gates[2].name");
        assert_eq!(Path::new("values").key("a").to_string(), "values[a]");
        assert_eq!(Path::root().to_string(), "<nil>");
        assert_eq!(Path::root().child("spec").to_string(), "spec");
    }

    #[test]
    fn error_texts_are_those_of_kubernetes() {
        let path = Path::new("spec").child("x");
        let cases = [
            (FieldError::required(&path, ""), "spec.x: Required value"),
            (
                FieldError::required(&path, "name or generateName is required"),
                "spec.x: Required value: name or generateName is required",
            ),
            (
                FieldError::invalid(&path, "a\"b", "must be y"),
                r#"spec.x: Invalid value: "a\"b": must be y"#,
            ),
            (
                FieldError::invalid(&path, json!({"b": [1, "<"]}), "no"),
                r#"spec.x: Invalid value: {"b":[1,"\u003c"]}: no"#,
            ),
            (
                FieldError::invalid(&path, 7, ""),
                "spec.x: Invalid value: 7",
            ),
            (
                FieldError::not_supported(&path, "z", ["a", "b"]),
                r#"spec.x: Unsupported value: "z": supported values: "a", "b""#,
            ),
            (
                FieldError::duplicate(&path, json!({"name": "a"})),
                r#"spec.x: Duplicate value: {"name":"a"}"#,
            ),
            (
                FieldError::forbidden(&path, "not allowed on this type"),
                "spec.x: Forbidden: not allowed on this type",
            ),
            (
                FieldError::too_long(&path, 262_144),
                "spec.x: Too long: may not be more than 262144 bytes",
            ),
            (
                FieldError::too_many(&path, 3, 1),
                "spec.x: Too many: 3: must have at most 1 item",
            ),
            (
                FieldError::type_invalid(&path, true, "must be text"),
                "spec.x: Invalid value: true: must be text",
            ),
            (
                FieldError::not_found(&path, "n"),
                r#"spec.x: Not found: "n""#,
            ),
            (
                FieldError::internal(&path, "e"),
                "spec.x: Internal error: e",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn joined_errors_drop_repetitions() {
        assert_eq!(join_errors(&["a", "a"]), "a");
        assert_eq!(join_errors(&["a", "b", "a"]), "[a, b]");
    }
}
