//! Tables: objects as rows, for `kubectl get`.
//!
//! Each column is a [`JsonPath`] with a type; the time is an argument, because ages are relative
//! to it.

mod json_path;

pub use json_path::*;

use serde::Serialize;
use serde_json::Value;

use crate::partial::partial_metadata;
use crate::{metadata, timestamp};

/// The description of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnDefinition {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A format of the type; `name` for the column that identifies the row.
    pub format: String,
    /// What the column shows.
    pub description: String,
    /// 0 for columns that are always shown, more for those of `-o wide`.
    pub priority: i32,
}

#[derive(Debug, Clone)]
enum Cell {
    Name,
    CreatedAt,
    Path(JsonPath),
}

/// The columns of a resource. The first is always the name.
#[derive(Debug, Clone)]
pub struct Columns {
    definitions: Vec<ColumnDefinition>,
    cells: Vec<Cell>,
}

fn definition(name: &str, kind: &str, format: &str, description: &str) -> ColumnDefinition {
    ColumnDefinition {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        priority: 0,
    }
}

/// The columns of a resource that declares none: Name and Created At.
impl Default for Columns {
    fn default() -> Columns {
        let mut columns = Columns::named();
        let created = definition("Created At", "date", "", "The time of creation in UTC.");
        columns.definitions.push(created);
        columns.cells.push(Cell::CreatedAt);
        columns
    }
}

impl Columns {
    /// The column Name alone; add others with [`Columns::column`].
    #[must_use]
    pub fn named() -> Columns {
        Columns {
            definitions: vec![definition(
                "Name",
                "string",
                "name",
                "The name, unique within a namespace.",
            )],
            cells: vec![Cell::Name],
        }
    }

    /// Adds a column that shows the first value at a path.
    pub fn column(mut self, name: &str, kind: &str, path: &str) -> Result<Columns, JsonPathError> {
        self.cells.push(Cell::Path(JsonPath::parse(path)?));
        let description = format!("The value at {path}.");
        self.definitions
            .push(definition(name, kind, "", &description));
        Ok(self)
    }

    /// Adds a column that only `-o wide` shows.
    pub fn wide_column(self, name: &str, kind: &str, path: &str) -> Result<Columns, JsonPathError> {
        let mut columns = self.column(name, kind, path)?;
        if let Some(last) = columns.definitions.last_mut() {
            last.priority = 1;
        }
        Ok(columns)
    }

    /// Adds the column Age.
    pub fn age(self) -> Result<Columns, JsonPathError> {
        self.column("Age", "date", ".metadata.creationTimestamp")
    }

    /// Returns the descriptions of the columns.
    #[must_use]
    pub fn definitions(&self) -> &[ColumnDefinition] {
        &self.definitions
    }

    /// Returns the cells of one object at a time in seconds since 1970.
    #[must_use]
    pub fn cells(&self, object: &Value, now_unix_s: i64) -> Vec<Value> {
        self.cells
            .iter()
            .zip(&self.definitions)
            .map(|(cell, definition)| match cell {
                Cell::Name => metadata::name(object).into(),
                Cell::CreatedAt => metadata::text(object, "creationTimestamp").into(),
                Cell::Path(path) => match path.find(object).first() {
                    Some(value) => typed_cell(&definition.kind, value, now_unix_s),
                    None => Value::Null,
                },
            })
            .collect()
    }
}

fn typed_cell(kind: &str, value: &Value, now_unix_s: i64) -> Value {
    match (kind, value) {
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", Value::Null) => "<nil>".into(),
        ("string", value) => value.to_string().into(),
        ("integer", Value::Number(number)) => {
            let whole = number
                .as_i64()
                .or_else(|| number.as_f64().map(|float| float as i64));
            whole.into()
        }
        ("number", Value::Number(number)) => number.as_f64().into(),
        ("boolean", Value::Bool(flag)) => (*flag).into(),
        ("date", Value::String(text)) if text.is_empty() => "<unknown>".into(),
        ("date", Value::String(text)) => match timestamp::parse(text) {
            Some(time) => timestamp::human_duration(now_unix_s.saturating_sub(time)).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// What a row carries of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter `includeObject`; an empty text means the metadata.
    #[must_use]
    pub fn parse(text: &str) -> Option<IncludeObject> {
        match text {
            "" | "Metadata" => Some(IncludeObject::Metadata),
            "None" => Some(IncludeObject::None),
            "Object" => Some(IncludeObject::Object),
            _ => None,
        }
    }
}

/// The metadata of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// The revision of the list.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The token for the next part of the list.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    /// The number of items behind this part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The cells, one per column.
    pub cells: Vec<Value>,
    /// The object or its metadata.
    pub object: Value,
}

/// A `Table` object of the version meta.k8s.io/v1, serialised in the order of Kubernetes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    kind: &'static str,
    api_version: &'static str,
    /// The metadata of the list, or the version of the single object.
    pub metadata: ListMeta,
    /// The headings; missing in every event of a watch but the first.
    pub column_definitions: Option<Vec<ColumnDefinition>>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// Creates the table of objects at a time in seconds since 1970.
    #[must_use]
    pub fn new<'object>(
        columns: &Columns,
        objects: impl IntoIterator<Item = &'object Value>,
        metadata: ListMeta,
        include: IncludeObject,
        now_unix_s: i64,
    ) -> Table {
        let row = |object: &Value| Row {
            cells: columns.cells(object, now_unix_s),
            object: match include {
                IncludeObject::None => Value::Null,
                IncludeObject::Metadata => partial_metadata(object),
                IncludeObject::Object => object.clone(),
            },
        };
        Table {
            kind: "Table",
            api_version: "meta.k8s.io/v1",
            metadata,
            column_definitions: Some(columns.definitions.clone()),
            rows: objects.into_iter().map(row).collect(),
        }
    }

    /// Returns this table without headings.
    #[must_use]
    pub fn without_headings(mut self) -> Table {
        self.column_definitions = None;
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({"apiVersion": "g/v1", "kind": "K",
            "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"size": 3, "ratio": 2, "on": true, "map": {"b": 1}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    }

    #[test]
    fn default_columns_are_name_and_created_at() {
        let columns = Columns::default();
        let names: Vec<&str> = columns
            .definitions()
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        assert_eq!(names, ["Name", "Created At"]);
        assert_eq!(
            columns.cells(&object(), 0),
            [json!("a"), json!("1970-01-01T00:00:00Z")]
        );
    }

    #[test]
    fn cells_have_the_type_of_their_column() {
        let columns = Columns::named()
            .column("Size", "integer", ".spec.size")
            .unwrap()
            .column("Ratio", "number", ".spec.ratio")
            .unwrap()
            .column("On", "boolean", ".spec.on")
            .unwrap()
            .column("Map", "string", ".spec.map")
            .unwrap()
            .column(
                "Ready",
                "string",
                r#".status.conditions[?(@.type=="Ready")].status"#,
            )
            .unwrap()
            .column("Missing", "string", ".spec.none")
            .unwrap()
            .column("Wrong", "integer", ".spec.map")
            .unwrap()
            .wide_column("Time", "date", ".metadata.name")
            .unwrap()
            .age()
            .unwrap();
        assert_eq!(
            Value::Array(columns.cells(&object(), 90)),
            json!([
                "a",
                3,
                2.0,
                true,
                "{\"b\":1}",
                "True",
                null,
                null,
                "<invalid>",
                "90s"
            ])
        );
        assert_eq!(columns.definitions()[8].priority, 1);
    }

    #[test]
    fn table_has_the_shape_of_kubernetes() {
        let metadata = ListMeta {
            resource_version: "7".into(),
            continue_token: "c".into(),
            remaining_item_count: Some(2),
        };
        let table = Table::new(
            &Columns::named(),
            [&object()],
            metadata,
            IncludeObject::Metadata,
            0,
        );
        let value = serde_json::to_value(&table).unwrap();
        assert_eq!(
            value["metadata"],
            json!({"resourceVersion": "7", "continue": "c", "remainingItemCount": 2})
        );
        assert_eq!(value["columnDefinitions"][0]["format"], "name");
        assert_eq!(value["rows"][0]["cells"], json!(["a"]));
        assert_eq!(value["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let text = serde_json::to_string(&table.without_headings()).unwrap();
        assert!(
            text.starts_with(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"#),
            "{text}"
        );
        assert!(text.contains(r#""columnDefinitions":null"#));
    }

    #[test]
    fn rows_carry_as_much_of_the_object_as_asked() {
        let row = |text: &str| {
            let include = IncludeObject::parse(text).unwrap();
            let table = Table::new(
                &Columns::named(),
                [&object()],
                ListMeta::default(),
                include,
                0,
            );
            table.rows[0].object.clone()
        };
        assert_eq!(row("None"), json!(null));
        assert_eq!(row("Object"), object());
        assert_eq!(row(""), row("Metadata"));
        assert_eq!(IncludeObject::parse("other"), None);
    }
}
