//! Schemas from their JSON form, with limits.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use thiserror::Error;

use super::pattern::{Pattern, PatternError};
use super::{Additional, Bound, ListType, Schema, Type};
use crate::field::FieldError;

/// The deepest nesting of schemas.
pub const SCHEMA_DEPTH_MAX: usize = 64;

/// The most schemas inside of one schema.
pub const SCHEMA_NODES_MAX: usize = 10_000;

/// A schema that is not structural or exceeds a limit.
#[derive(Debug, Error)]
#[error("schema{path}: {problem}")]
pub struct SchemaError {
    path: String,
    #[source]
    problem: SchemaProblem,
}

/// What is wrong with a schema.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SchemaProblem {
    /// A keyword has a value of the wrong type.
    #[error("{keyword} must be {expected}")]
    Keyword {
        /// The keyword.
        keyword: &'static str,
        /// The type that is allowed.
        expected: &'static str,
    },
    /// A keyword is not part of structural schemas.
    #[error("{0} is not supported")]
    NotSupported(&'static str),
    /// The type is missing.
    #[error(
        "type is required, unless x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true"
    )]
    TypeRequired,
    /// The type is unknown.
    #[error("unknown type {0:?}: use object, array, string, integer, number or boolean")]
    UnknownType(String),
    /// The list type is unknown, or its keys are missing.
    #[error(
        "x-kubernetes-list-type must be atomic, set or map, and map needs x-kubernetes-list-map-keys"
    )]
    ListType,
    /// The pattern is no regular expression.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The schema is nested too deeply.
    #[error("nested more than {SCHEMA_DEPTH_MAX} levels deep")]
    TooDeep,
    /// The schema has too many parts.
    #[error("more than {SCHEMA_NODES_MAX} schemas")]
    TooLarge,
    /// The default is not valid.
    #[error("default: {0}")]
    Default(FieldError),
}

impl Schema {
    /// Parses the schema of an object: `openAPIV3Schema` of a custom resource definition.
    pub fn parse(value: &Value) -> Result<Schema, SchemaError> {
        let mut parser = Parser { nodes: 0 };
        let schema = parser.schema(value, "", 0, false)?;
        if schema.kind != Type::Object {
            let problem = SchemaProblem::Keyword {
                keyword: "type",
                expected: "object at the root",
            };
            return Err(at("", problem));
        }
        Ok(schema)
    }
}

fn at(path: &str, problem: SchemaProblem) -> SchemaError {
    SchemaError {
        path: path.to_owned(),
        problem,
    }
}

struct Parser {
    nodes: usize,
}

impl Parser {
    /// Parses a schema. Inside of a junctor (allOf and so on) the type is optional.
    fn schema(
        &mut self,
        value: &Value,
        path: &str,
        depth: usize,
        in_junctor: bool,
    ) -> Result<Schema, SchemaError> {
        self.nodes += 1;
        if self.nodes > SCHEMA_NODES_MAX {
            return Err(at(path, SchemaProblem::TooLarge));
        }
        if depth >= SCHEMA_DEPTH_MAX {
            return Err(at(path, SchemaProblem::TooDeep));
        }
        let Value::Object(fields) = value else {
            let problem = SchemaProblem::Keyword {
                keyword: "schema",
                expected: "a map",
            };
            return Err(at(path, problem));
        };
        let mut schema = scalars(fields, in_junctor).map_err(|problem| at(path, problem))?;
        let depth = depth + 1;
        schema.properties = self.properties(fields, path, depth, in_junctor)?;
        schema.additional = self.additional(fields, path, depth, in_junctor)?;
        let optional = |parser: &mut Parser, keyword: &str, in_junctor| {
            let value = fields.get(keyword);
            let path = format!("{path}.{keyword}");
            value
                .map(|value| parser.schema(value, &path, depth, in_junctor).map(Box::new))
                .transpose()
        };
        schema.items = optional(self, "items", in_junctor)?;
        schema.not = optional(self, "not", true)?;
        schema.all_of = self.junctor(fields, "allOf", path, depth)?;
        schema.any_of = self.junctor(fields, "anyOf", path, depth)?;
        schema.one_of = self.junctor(fields, "oneOf", path, depth)?;
        if let Some(default) = &schema.default
            && let Some(error) = schema.validate(default).into_iter().next()
        {
            return Err(at(path, SchemaProblem::Default(error)));
        }
        Ok(schema)
    }

    fn properties(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
        in_junctor: bool,
    ) -> Result<BTreeMap<String, Schema>, SchemaError> {
        let keyword = "properties";
        let properties = match fields.get(keyword) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(properties)) => properties,
            Some(_) => {
                let expected = "a map";
                return Err(at(path, SchemaProblem::Keyword { keyword, expected }));
            }
        };
        properties
            .iter()
            .map(|(name, value)| {
                let path = format!("{path}.{name}");
                let schema = self.schema(value, &path, depth, in_junctor)?;
                Ok((name.clone(), schema))
            })
            .collect()
    }

    fn additional(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
        in_junctor: bool,
    ) -> Result<Option<Additional>, SchemaError> {
        match fields.get("additionalProperties") {
            None => Ok(None),
            Some(Value::Bool(is_allowed)) => Ok(Some(Additional::Allowed(*is_allowed))),
            Some(value) => {
                let path = format!("{path}[*]");
                let schema = self.schema(value, &path, depth, in_junctor)?;
                Ok(Some(Additional::Schema(Box::new(schema))))
            }
        }
    }

    fn junctor(
        &mut self,
        fields: &Map<String, Value>,
        keyword: &'static str,
        path: &str,
        depth: usize,
    ) -> Result<Vec<Schema>, SchemaError> {
        match fields.get(keyword) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, value)| {
                    let path = format!("{path}.{keyword}[{index}]");
                    self.schema(value, &path, depth, true)
                })
                .collect(),
            Some(_) => {
                let expected = "a list of schemas";
                Err(at(path, SchemaProblem::Keyword { keyword, expected }))
            }
        }
    }
}

/// Parses the keywords that hold no schema.
fn scalars(fields: &Map<String, Value>, in_junctor: bool) -> Result<Schema, SchemaProblem> {
    for keyword in ["$ref", "definitions", "patternProperties", "dependencies"] {
        if fields.contains_key(keyword) {
            return Err(SchemaProblem::NotSupported(keyword));
        }
    }
    // Comparing every item with every other takes too long, so Kubernetes refuses it as well.
    if flag(fields, "uniqueItems")? {
        return Err(SchemaProblem::NotSupported("uniqueItems"));
    }
    let preserves_unknown_fields = flag(fields, "x-kubernetes-preserve-unknown-fields")?;
    Ok(Schema {
        kind: kind(fields, in_junctor || preserves_unknown_fields)?,
        is_nullable: flag(fields, "nullable")?,
        default: fields
            .get("default")
            .filter(|value| !value.is_null())
            .cloned(),
        format: text(fields, "format")?.unwrap_or_default(),
        properties: BTreeMap::new(),
        additional: None,
        required: texts(fields, "required")?,
        items: None,
        list_type: list_type(fields)?,
        enumeration: match fields.get("enum") {
            None => Vec::new(),
            Some(Value::Array(values)) => values.clone(),
            Some(_) => {
                return Err(SchemaProblem::Keyword {
                    keyword: "enum",
                    expected: "a list",
                });
            }
        },
        pattern: text(fields, "pattern")?
            .filter(|pattern| !pattern.is_empty())
            .map(|pattern| Pattern::new(&pattern))
            .transpose()?,
        minimum: bound(fields, "minimum", "exclusiveMinimum")?,
        maximum: bound(fields, "maximum", "exclusiveMaximum")?,
        multiple_of: number(fields, "multipleOf")?.filter(|factor| *factor > 0.0),
        length_min: count(fields, "minLength")?,
        length_max: count(fields, "maxLength")?,
        items_min: count(fields, "minItems")?,
        items_max: count(fields, "maxItems")?,
        properties_min: count(fields, "minProperties")?,
        properties_max: count(fields, "maxProperties")?,
        preserves_unknown_fields,
        is_embedded_resource: flag(fields, "x-kubernetes-embedded-resource")?,
        all_of: Vec::new(),
        any_of: Vec::new(),
        one_of: Vec::new(),
        not: None,
    })
}

fn kind(fields: &Map<String, Value>, is_optional: bool) -> Result<Type, SchemaProblem> {
    if flag(fields, "x-kubernetes-int-or-string")? {
        return Ok(Type::IntOrString);
    }
    match text(fields, "type")?.unwrap_or_default().as_str() {
        "object" => Ok(Type::Object),
        "array" => Ok(Type::Array),
        "string" => Ok(Type::String),
        "integer" => Ok(Type::Integer),
        "number" => Ok(Type::Number),
        "boolean" => Ok(Type::Boolean),
        "" if is_optional => Ok(Type::Any),
        "" => Err(SchemaProblem::TypeRequired),
        other => Err(SchemaProblem::UnknownType(other.to_owned())),
    }
}

fn list_type(fields: &Map<String, Value>) -> Result<ListType, SchemaProblem> {
    let keys = texts(fields, "x-kubernetes-list-map-keys")?;
    match text(fields, "x-kubernetes-list-type")?
        .unwrap_or_default()
        .as_str()
    {
        "" | "atomic" if keys.is_empty() => Ok(ListType::Atomic),
        "set" if keys.is_empty() => Ok(ListType::Set),
        "map" if !keys.is_empty() => Ok(ListType::Map(keys)),
        _ => Err(SchemaProblem::ListType),
    }
}

fn flag(fields: &Map<String, Value>, keyword: &'static str) -> Result<bool, SchemaProblem> {
    match fields.get(keyword) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(SchemaProblem::Keyword {
            keyword,
            expected: "true or false",
        }),
    }
}

fn text(
    fields: &Map<String, Value>,
    keyword: &'static str,
) -> Result<Option<String>, SchemaProblem> {
    match fields.get(keyword) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(value)) => Ok(Some(value.clone())),
        Some(_) => Err(SchemaProblem::Keyword {
            keyword,
            expected: "a text",
        }),
    }
}

fn texts(fields: &Map<String, Value>, keyword: &'static str) -> Result<Vec<String>, SchemaProblem> {
    let expected = "a list of texts";
    match fields.get(keyword) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(values)) => values
            .iter()
            .map(|value| value.as_str().map(str::to_owned))
            .collect::<Option<Vec<String>>>()
            .ok_or(SchemaProblem::Keyword { keyword, expected }),
        Some(_) => Err(SchemaProblem::Keyword { keyword, expected }),
    }
}

fn number(
    fields: &Map<String, Value>,
    keyword: &'static str,
) -> Result<Option<f64>, SchemaProblem> {
    match fields.get(keyword) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(SchemaProblem::Keyword {
            keyword,
            expected: "a number",
        }),
    }
}

fn count(fields: &Map<String, Value>, keyword: &'static str) -> Result<Option<u64>, SchemaProblem> {
    match fields.get(keyword) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or(SchemaProblem::Keyword {
            keyword,
            expected: "a whole number that is not negative",
        }),
    }
}

fn bound(
    fields: &Map<String, Value>,
    keyword: &'static str,
    exclusive: &'static str,
) -> Result<Option<Bound>, SchemaProblem> {
    let is_exclusive = flag(fields, exclusive)?;
    let value = number(fields, keyword)?;
    Ok(value.map(|value| Bound {
        value,
        is_exclusive,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_that_are_not_structural_are_refused() {
        let cases = [
            (json!(1), "schema: schema must be a map"),
            (
                json!({}),
                "schema: type is required, unless x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true",
            ),
            (
                json!({"type": "string"}),
                "schema: type must be object at the root",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "text"}}}),
                "schema.a: unknown type \"text\": use object, array, string, integer, number or boolean",
            ),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "#/b"}}}),
                "schema.a: $ref is not supported",
            ),
            (
                json!({"type": "object", "properties": []}),
                "schema: properties must be a map",
            ),
            (
                json!({"type": "object", "required": [1]}),
                "schema: required must be a list of texts",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": -1}}}),
                "schema.a: maxLength must be a whole number that is not negative",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}}}),
                "schema.a: x-kubernetes-list-type must be atomic, set or map, and map needs x-kubernetes-list-map-keys",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
                "schema.a: default: <nil>: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
        ];
        for (value, text) in cases {
            assert_eq!(Schema::parse(&value).unwrap_err().to_string(), text);
        }
        let pattern =
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
        let error = Schema::parse(&pattern).unwrap_err().to_string();
        assert!(
            error.starts_with("schema.a: pattern \"(\" is not a regular expression"),
            "{error}"
        );
    }

    #[test]
    fn depth_and_size_of_schemas_are_limited() {
        let mut value = json!({"type": "object"});
        for _ in 0..SCHEMA_DEPTH_MAX - 1 {
            value = json!({"type": "object", "properties": {"a": value}});
        }
        assert!(Schema::parse(&value).is_ok());
        value = json!({"type": "object", "properties": {"a": value}});
        let error = Schema::parse(&value).unwrap_err().to_string();
        assert!(
            error.ends_with("nested more than 64 levels deep"),
            "{error}"
        );

        let properties: Map<String, Value> = (0..SCHEMA_NODES_MAX)
            .map(|index| (index.to_string(), json!({"type": "string"})))
            .collect();
        let error =
            Schema::parse(&json!({"type": "object", "properties": properties})).unwrap_err();
        assert!(error.to_string().ends_with("more than 10000 schemas"));
    }
}
