//! Field validation: what happens to unknown and repeated fields of a request.

use serde_json::Value;
use thiserror::Error;

use super::Schema;
use crate::decode::{DecodeError, Decoded, decode_object};
use crate::field::{FieldError, Path};
use crate::go_format::quote;
use crate::metadata::{self, MetadataError};

/// The query parameter `fieldValidation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FieldValidation {
    /// Unknown and repeated fields are dropped.
    Ignore,
    /// Unknown and repeated fields are dropped, with a warning for each.
    #[default]
    Warn,
    /// A request with an unknown or repeated field is refused.
    Strict,
}

impl FieldValidation {
    /// Parses the query parameter; an empty text means Warn.
    pub fn parse(text: &str) -> Result<FieldValidation, FieldError> {
        match text {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(FieldError::not_supported(
                &Path::new("fieldValidation"),
                other,
                ["", "Ignore", "Strict", "Warn"],
            )),
        }
    }
}

/// A body that is no object of the schema's form.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The body is not a JSON map.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The metadata has a value of the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The body has unknown or repeated fields, and field validation is strict.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// An object with known fields only.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadObject {
    /// The object, without defaults.
    pub object: Value,
    /// The warnings for the client.
    pub warnings: Vec<String>,
}

impl Schema {
    /// Decodes a body, coerces its metadata, and prunes it.
    pub fn read(&self, body: &[u8], validation: FieldValidation) -> Result<ReadObject, ReadError> {
        let Decoded { value, duplicates } = decode_object(body)?;
        self.read_value(value, duplicates, validation)
    }

    /// Does what [`Schema::read`] does with a value that is decoded already, such as the result
    /// of a patch. `problems` are the texts about repeated fields found before.
    pub fn read_value(
        &self,
        mut object: Value,
        problems: Vec<String>,
        validation: FieldValidation,
    ) -> Result<ReadObject, ReadError> {
        let mut unknown = metadata::coerce(&mut object)?;
        unknown.extend(self.prune(&mut object));
        let mut problems = problems;
        problems.extend(
            unknown
                .iter()
                .map(|path| format!("unknown field {}", quote(path))),
        );
        match validation {
            FieldValidation::Strict if !problems.is_empty() => Err(ReadError::Strict(problems)),
            FieldValidation::Warn => Ok(ReadObject {
                object,
                warnings: problems,
            }),
            FieldValidation::Strict | FieldValidation::Ignore => Ok(ReadObject {
                object,
                warnings: Vec::new(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BODY: &[u8] =
        br#"{"kind": "K", "metadata": {"name": "a", "odd": 1}, "spec": {"x": 1, "x": 2, "y": 3}}"#;

    fn schema() -> Schema {
        Schema::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"x": {"type": "integer"}}}}}))
        .unwrap()
    }

    #[test]
    fn strict_validation_refuses_unknown_and_repeated_fields() {
        let error = schema().read(BODY, FieldValidation::Strict).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"strict decoding error: duplicate field "spec.x", unknown field "metadata.odd", unknown field "spec.y""#
        );
        let clean = br#"{"spec": {"x": 1}}"#;
        assert!(schema().read(clean, FieldValidation::Strict).is_ok());
    }

    #[test]
    fn other_validations_drop_fields_with_and_without_warnings() {
        let pruned = json!({"kind": "K", "metadata": {"name": "a"}, "spec": {"x": 2}});
        let read = schema().read(BODY, FieldValidation::Warn).unwrap();
        assert_eq!(read.object, pruned);
        assert_eq!(
            read.warnings,
            [
                r#"duplicate field "spec.x""#,
                r#"unknown field "metadata.odd""#,
                r#"unknown field "spec.y""#
            ]
        );
        let read = schema().read(BODY, FieldValidation::Ignore).unwrap();
        assert_eq!(
            read,
            ReadObject {
                object: pruned,
                warnings: Vec::new()
            }
        );
    }

    #[test]
    fn field_validation_is_parsed() {
        assert_eq!(FieldValidation::parse(""), Ok(FieldValidation::Warn));
        assert_eq!(
            FieldValidation::parse("Strict"),
            Ok(FieldValidation::Strict)
        );
        assert_eq!(
            FieldValidation::parse("strict").unwrap_err().to_string(),
            r#"fieldValidation: Unsupported value: "strict": supported values: "", "Ignore", "Strict", "Warn""#
        );
    }
}
