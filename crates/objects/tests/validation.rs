//! Validation of objects: one table of values and field errors, and ratcheting.
#![allow(missing_docs, clippy::unwrap_used)]

use portunus_objects::schema::Schema;
use serde_json::{Value, json};

fn schema_of(property: Value) -> Schema {
    let spec = json!({"type": "object", "properties": {"x": property}});
    Schema::parse(&json!({"type": "object", "properties": {"spec": spec}})).unwrap()
}

fn errors(property: Value, value: Value) -> Vec<String> {
    let object = json!({"spec": {"x": value}});
    let errors = schema_of(property).validate(&object);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn valid_values_have_no_errors() {
    let cases = [
        (
            json!({"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^é+$"}),
            json!("éé"),
        ),
        (
            json!({"type": "integer", "minimum": 1, "maximum": 5}),
            json!(5),
        ),
        (json!({"type": "integer"}), json!(5.0)),
        (json!({"type": "number"}), json!(5)),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3)),
        (json!({"type": "boolean"}), json!(false)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!("5%")),
        (json!({"x-kubernetes-int-or-string": true}), json!(5)),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!([1, {"a": null}]),
        ),
        (json!({"type": "string", "enum": ["a", "b"]}), json!("b")),
        (json!({"type": "integer", "enum": [1, 2]}), json!(2)),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("2026-01-01T00:00:00Z"),
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "b"]),
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"a": 1}),
        ),
    ];
    for (property, value) in cases {
        assert_eq!(
            errors(property.clone(), value),
            Vec::<String>::new(),
            "{property}"
        );
    }
}

#[test]
fn field_errors_have_the_texts_of_kubernetes() {
    let cases: Vec<(Value, Value, Vec<&str>)> = vec![
        (
            json!({"type": "integer"}),
            json!("a"),
            vec![
                r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#,
            ],
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec![
                r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#,
                r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x"#,
            ],
        ),
        (
            json!({"type": "string"}),
            json!(null),
            vec![r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(true),
            vec![r#"spec.x: Invalid value: "": spec.x in body must be of type int32: """#],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(5_000_000_000_i64),
            vec![
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x"#,
            ],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            vec![
                r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#,
            ],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            vec!["spec.x: Too long: may not be more than 2 bytes"],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            vec![r#"spec.x: Invalid value: "a": spec.x in body should be at least 2 chars long"#],
        ),
        (
            json!({"type": "string", "pattern": "^a$"}),
            json!("b"),
            vec![r#"spec.x: Invalid value: "b": spec.x in body should match '^a$'"#],
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            vec![r#"spec.x: Unsupported value: "c": supported values: "a", "b""#],
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            vec![r#"spec.x: Unsupported value: 3: supported values: "1", "2""#],
        ),
        (
            json!({"type": "integer", "minimum": 2}),
            json!(1),
            vec!["spec.x: Invalid value: 1: spec.x in body should be greater than or equal to 2"],
        ),
        (
            json!({"type": "integer", "minimum": 2, "exclusiveMinimum": true}),
            json!(2),
            vec!["spec.x: Invalid value: 2: spec.x in body should be greater than 2"],
        ),
        (
            json!({"type": "integer", "maximum": 2}),
            json!(3),
            vec!["spec.x: Invalid value: 3: spec.x in body should be less than or equal to 2"],
        ),
        (
            json!({"type": "number", "maximum": 2.5, "exclusiveMaximum": true}),
            json!(2.5),
            vec!["spec.x: Invalid value: 2.5: spec.x in body should be less than 2.5"],
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            vec!["spec.x: Invalid value: 4: spec.x in body should be a multiple of 3"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            vec!["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            vec!["spec.x: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", 1]),
            vec![
                r#"spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer""#,
            ],
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            vec!["spec.x.a: Required value"],
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            json!({}),
            vec!["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"],
        ),
        (
            json!({"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}}),
            json!({"a": 1, "b": "c"}),
            vec![
                "spec.x: Too many: 2: must have at most 1 item",
                r#"spec.x.b: Invalid value: "string": spec.x.b in body must be of type integer: "string""#,
            ],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("now"),
            vec![
                r#"spec.x: Invalid value: "now": spec.x in body must be of type date-time: "now""#,
            ],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "b", "a", "a"]),
            vec![r#"spec.x[2]: Duplicate value: "a""#],
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
            json!([{"name": "a"}, {"name": "a", "v": 1}]),
            vec![r#"spec.x[1]: Duplicate value: {"name":"a"}"#],
        ),
        (
            json!({"type": "integer", "anyOf": [{"minimum": 5}, {"enum": [1]}]}),
            json!(2),
            vec![
                r#"<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#,
                "spec.x: Invalid value: 2: spec.x in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]}),
            json!(2),
            vec![
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 1}, {"minimum": 3}]}),
            json!(2),
            vec![
                "spec.x: Invalid value: 2: spec.x in body should be greater than or equal to 3",
                r#"<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)"#,
            ],
        ),
        (
            json!({"type": "integer", "not": {"minimum": 1}}),
            json!(2),
            vec![r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#],
        ),
    ];
    for (property, value, texts) in cases {
        assert_eq!(errors(property.clone(), value), texts, "{property}");
    }
}

#[test]
fn unchanged_values_are_not_reported_again_on_update() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1},
        "b": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 1}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}, "w": {"type": "integer"}}}}}}}}))
    .unwrap();
    let update = |after: Value, before: Value| -> Vec<String> {
        let errors = schema.validate_update(&json!({"spec": after}), &json!({"spec": before}));
        errors.iter().map(ToString::to_string).collect()
    };
    let before = json!({"a": "long", "b": 1, "list": ["long"], "map": [{"k": "x", "v": "long"}]});
    assert!(!schema.validate(&json!({"spec": before})).is_empty());

    let other_field =
        json!({"a": "long", "b": 2, "list": ["long"], "map": [{"k": "x", "v": "long"}]});
    assert_eq!(update(other_field, before.clone()), Vec::<String>::new());

    let same_field = json!({"a": "longer", "b": 1, "list": ["long"]});
    assert_eq!(
        update(same_field, before.clone()),
        ["spec.a: Too long: may not be more than 1 byte"]
    );

    // Items of a list-map are found by key, wherever they stand; other lists change as a whole.
    let moved =
        json!({"a": "long", "map": [{"k": "new", "v": "y"}, {"k": "x", "v": "long", "w": 1}]});
    assert_eq!(update(moved, before.clone()), Vec::<String>::new());
    let grown = json!({"a": "long", "list": ["long", "x"]});
    assert_eq!(
        update(grown, before.clone()),
        ["spec.list[0]: Too long: may not be more than 1 byte"]
    );
}

#[test]
fn repeated_items_are_reported_on_update_unless_they_were_there_before() {
    let property =
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let schema = schema_of(property);
    let object = |items: Value| json!({"spec": {"x": items}});
    let once = object(json!(["a"]));
    let twice = object(json!(["a", "a"]));
    let thrice = object(json!(["a", "a", "b", "b"]));
    assert_eq!(schema.validate_update(&twice, &once).len(), 1);
    assert_eq!(schema.validate_update(&thrice, &twice).len(), 0);
}

#[test]
fn number_of_reported_errors_is_limited() {
    let schema = schema_of(json!({"type": "array", "items": {"type": "string"}}));
    let object = json!({"spec": {"x": vec![1; 100_000]}});
    assert_eq!(
        schema.validate(&object).len(),
        portunus_objects::schema::ERRORS_MAX
    );
}

#[test]
fn large_list_map_is_validated_in_linear_time() {
    let property = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "integer"}, "v": {"type": "string", "maxLength": 1}}}});
    let schema = schema_of(property);
    let items = |last: &str| {
        let mut items: Vec<Value> = (0..30_000).map(|k| json!({"k": k, "v": "long"})).collect();
        items.push(json!({"k": 30_000, "v": last}));
        json!({"spec": {"x": items}})
    };
    let errors = schema.validate_update(&items("longer"), &items("long"));
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].to_string(),
        "spec.x[30000].v: Too long: may not be more than 1 byte"
    );
}
