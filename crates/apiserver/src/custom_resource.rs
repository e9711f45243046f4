//! Definitions from custom resource definitions, which `kube-derive` makes from a struct.

use portunus_apis::Lifecycle;
use portunus_objects::table::{Columns, JsonPathError};
use serde_json::Value;

use crate::definition::{Definition, DefinitionError, VersionDefinition};

fn text<'value>(
    value: &'value Value,
    pointer: &str,
    field: &'static str,
) -> Result<&'value str, DefinitionError> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.ok_or(DefinitionError::CustomResource { field })
}

fn texts<'value>(value: &'value Value, pointer: &str) -> impl Iterator<Item = &'value str> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

impl Definition {
    /// Creates the definition of a resource from a custom resource definition
    /// (`apiextensions.k8s.io/v1`) as JSON. Every version has the same lifecycle; versions that
    /// the definition does not serve are off by default.
    ///
    /// ```text
    /// let widgets = Definition::from_custom_resource(
    ///     &serde_json::to_value(Widget::crd())?,
    ///     &Lifecycle::since("1.37"),
    /// )?;
    /// ```
    ///
    /// # Errors
    /// If a field is missing, or a schema is not structural.
    pub fn from_custom_resource(
        document: &Value,
        lifecycle: &Lifecycle,
    ) -> Result<Definition, DefinitionError> {
        let group = text(document, "/spec/group", "spec.group")?;
        let kind = text(document, "/spec/names/kind", "spec.names.kind")?;
        let plural = text(document, "/spec/names/plural", "spec.names.plural")?;
        let mut definition = Definition::new(group, kind, plural)
            .with_short_names(texts(document, "/spec/names/shortNames"))
            .with_categories(texts(document, "/spec/names/categories"));
        if let Ok(singular) = text(document, "/spec/names/singular", "spec.names.singular") {
            definition = definition.with_singular(singular);
        }
        if text(document, "/spec/scope", "spec.scope")? == "Cluster" {
            definition = definition.cluster_scoped();
        }
        let versions = document.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            definition = definition.with_version(version_of(version, lifecycle)?);
        }
        Ok(definition)
    }
}

fn version_of(
    version: &Value,
    lifecycle: &Lifecycle,
) -> Result<VersionDefinition, DefinitionError> {
    let name = text(version, "/name", "spec.versions[].name")?;
    let schema = version.pointer("/schema/openAPIV3Schema").cloned();
    let schema = schema.ok_or(DefinitionError::CustomResource {
        field: "spec.versions[].schema.openAPIV3Schema",
    })?;
    let mut definition = VersionDefinition::new(name, lifecycle.clone(), schema)?;
    let is_served = version.pointer("/served").and_then(Value::as_bool);
    definition = definition.served_by_default(is_served.unwrap_or(true));
    if version.pointer("/subresources/status").is_some() {
        definition = definition.with_status();
    }
    let columns = version.pointer("/additionalPrinterColumns");
    if let Some(list) = columns.and_then(Value::as_array) {
        let columns = columns_of(list).map_err(|source| DefinitionError::Column {
            version: name.to_owned(),
            source: Box::new(source),
        })?;
        definition = definition.with_columns(columns);
    }
    Ok(definition)
}

fn columns_of(list: &[Value]) -> Result<Columns, JsonPathError> {
    let field = |column: &Value, key: &str| {
        let text = column.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    list.iter().try_fold(Columns::named(), |columns, column| {
        let (name, kind, path) = (
            field(column, "name"),
            field(column, "type"),
            field(column, "jsonPath"),
        );
        if column.get("priority").and_then(Value::as_i64).unwrap_or(0) > 0 {
            columns.wide_column(&name, &kind, &path)
        } else {
            columns.column(&name, &kind, &path)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"spec": {
            "group": "example.io", "scope": "Cluster",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                ],
            }],
        }})
    }

    #[test]
    fn custom_resource_definition_is_read() {
        let definition =
            Definition::from_custom_resource(&document(), &Lifecycle::since("1.34")).unwrap();
        assert_eq!(definition.full_name(), "widgets.example.io");
        assert!(!definition.namespaced);
        let version = definition.version("v1").unwrap();
        assert!(version.has_status);
        let columns = version.columns.definitions();
        let columns: Vec<(&str, i32)> = columns
            .iter()
            .map(|column| (column.name.as_str(), column.priority))
            .collect();
        assert_eq!(columns, [("Name", 0), ("Size", 0), ("Color", 1)]);
    }

    #[test]
    fn missing_field_is_named() {
        let mut broken = document();
        broken["spec"]["names"]["plural"] = Value::Null;
        let error = Definition::from_custom_resource(&broken, &Lifecycle::always()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the custom resource definition has no usable spec.names.plural"
        );
    }
}
