//! Defaulting: fills in what an object leaves out.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Removes nulls that the schema does not allow, unless a default takes their place, and
    /// sets the defaults of missing fields.
    pub fn default_values(&self, object: &mut Value) {
        prune_nulls(object, Some(self));
        set_defaults(object, self);
    }

    fn replaces_null(&self, value: &Value) -> bool {
        value.is_null() && !self.is_nullable
    }
}

fn prune_nulls(value: &mut Value, schema: Option<&Schema>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let schema = schema.and_then(|schema| schema.field(name));
            let is_refused = schema
                .is_some_and(|schema| schema.replaces_null(value) && schema.default.is_none());
            prune_nulls(value, schema);
            !is_refused
        }),
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for item in items {
                prune_nulls(item, schema);
            }
        }
        _ => {}
    }
}

fn set_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else {
                    continue;
                };
                let is_set = map
                    .get(name)
                    .is_some_and(|value| !property.replaces_null(value));
                if !is_set {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map {
                if let Some(schema) = schema.field(name) {
                    replace_null(value, schema);
                    set_defaults(value, schema);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.items.as_deref() else {
                return;
            };
            for item in items {
                replace_null(item, schema);
                set_defaults(item, schema);
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, schema: &Schema) {
    if let Some(default) = &schema.default
        && schema.replaces_null(value)
    {
        *value = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_fill_missing_fields_and_refused_nulls() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "a": {"type": "integer", "default": 1},
            "b": {"type": "string", "nullable": true, "default": "x"},
            "c": {"type": "string"},
            "n": {"type": "string", "nullable": true},
            "o": {"type": "object", "default": {}, "properties": {"p": {"type": "integer", "default": 2}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "boolean", "default": false}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "y"}}}}))
        .unwrap();
        let cases = [
            (json!({}), json!({"a": 1, "b": "x", "o": {"p": 2}})),
            (
                json!({"a": null, "b": null, "c": null, "n": null, "unknown": null}),
                json!({"a": 1, "b": null, "n": null, "unknown": null, "o": {"p": 2}}),
            ),
            (
                json!({"a": 5, "b": "", "l": [{}, {"q": true}], "m": {"k": null, "j": "z"}, "o": {"p": 3}}),
                json!({"a": 5, "b": "", "l": [{"q": false}, {"q": true}], "m": {"k": "y", "j": "z"}, "o": {"p": 3}}),
            ),
        ];
        for (mut object, expected) in cases {
            schema.default_values(&mut object);
            assert_eq!(object, expected);
            schema.default_values(&mut object);
            assert_eq!(object, expected, "defaulting twice changes nothing");
        }
    }
}
