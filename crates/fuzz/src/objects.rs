//! Bodies of API requests: objects, patches and selectors.

use std::sync::LazyLock;

use portunus_objects::patch::{JsonPatch, MergePatch};
use portunus_objects::schema::{FieldValidation, Schema};
use portunus_objects::selector::{FieldSelector, LabelSelector, SelectableFields};
use portunus_objects::table::Columns;
use portunus_objects::{decode, metadata, partial, timestamp};
use portunus_olm as olm;
use serde_json::{Value, json};

use crate::input::line;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 9000, "multipleOf": 3},
            "ratio": {"type": "number", "exclusiveMinimum": true, "minimum": 0.5},
            "color": {"type": "string", "default": "red", "pattern": "^[a-z]+$", "maxLength": 9},
            "mode": {"type": "string", "enum": ["a", "b"], "nullable": true},
            "any": {"x-kubernetes-int-or-string": true},
            "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "flags": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "parts": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
                "required": ["name"], "properties": {"name": {"type": "string"}}}},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }});
    Schema::parse(&schema).expect("a legal schema")
});

/// Decodes an object strictly, validates it, and shows it.
pub fn objects(data: &[u8]) {
    let decoded = decode::decode(data);
    if let Ok(decoded) = &decoded {
        let text = decoded.value.to_string();
        let again = decode::decode(text.as_bytes()).expect("an encoded value");
        assert_eq!(again.value, decoded.value);
        assert_eq!(decode::depth(&again.value), decode::depth(&decoded.value));
    }
    let _ = decode::decode_object(data);
    for validation in ["Strict", "Warn", "Ignore"] {
        let validation = FieldValidation::parse(validation).expect("a known name");
        let Ok(read) = SCHEMA.read(data, validation) else {
            continue;
        };
        let mut object = read.object;
        let _ = SCHEMA.validate(&object);
        SCHEMA.default_values(&mut object);
        let _ = SCHEMA.validate_update(&object, &json!({"spec": {"size": 3}}));
        let defaulted = object.clone();
        SCHEMA.default_values(&mut object);
        assert_eq!(object, defaulted, "defaults are set once");
        let _ = SCHEMA.prune(&mut object);
        assert!(
            SCHEMA.prune(&mut object).is_empty(),
            "nothing is left to prune"
        );
        show(object);
    }
}

fn show(mut object: Value) {
    let check: metadata::NameCheck = metadata::name_is_dns_subdomain;
    let _ = metadata::validate_create(&object, true, check);
    let _ = metadata::validate_update(&object, &json!({"metadata": {"name": "a"}}));
    let _ = metadata::coerce(&mut object);
    let _ = metadata::labels(&object).len() + metadata::annotations(&object).len();
    let _ = metadata::finalizers(&object).count();
    let _ = partial::partial_metadata(&object);
    let columns = Columns::named().column("Size", "integer", ".spec.parts[*].name");
    let columns = columns.and_then(Columns::age).expect("legal columns");
    let _ = columns.cells(&object, 1_700_000_000);
    if let Some(created) = metadata::creation_timestamp(&object) {
        let text = timestamp::format(created).expect("a timestamp in range");
        assert_eq!(timestamp::parse(&text), Some(created));
    }
}

/// Parses a patch and applies it: the first line is the document, the rest the patch.
pub fn patches(data: &[u8]) {
    let (document, patch) = line(data);
    let Ok(document) = decode::decode(document) else {
        return;
    };
    let document = document.value;
    if let Ok(merge) = MergePatch::parse(patch) {
        let merged = merge.apply(document.clone());
        assert_eq!(
            merge.apply(merged.clone()),
            merged,
            "a merge patch is idempotent"
        );
    }
    if let Ok(patch) = JsonPatch::parse(patch) {
        let _ = patch.strict_errors();
        match patch.apply(document) {
            Ok(patched) => drop(patched.to_string()),
            Err(error) => drop(error.status()),
        }
    }
}

/// Parses label and field selectors; their texts are selectors again.
pub fn selectors(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let object = json!({"metadata": {"name": "a", "namespace": "ns",
        "labels": {"app": "web", "tier": "1"}}, "spec": {"color": "red"}});
    if let Ok(selector) = LabelSelector::parse(text) {
        let again = LabelSelector::parse(&selector.to_string()).expect("the text of a selector");
        assert_eq!(again.to_string(), selector.to_string());
        assert_eq!(again.matches(&object), selector.matches(&object));
    }
    let fields = SelectableFields::declare(["spec.color"]);
    if let Ok(selector) = FieldSelector::parse(text, &fields) {
        let again = FieldSelector::parse(&selector.to_string(), &fields);
        let again = again.expect("the text of a selector");
        // The order is that of the terms as they were written, as in Kubernetes.
        let sorted = |selector: &FieldSelector| {
            let requirements = selector.requirements().iter();
            let mut texts: Vec<String> = requirements.map(|it| format!("{it:?}")).collect();
            texts.sort_unstable();
            texts
        };
        assert_eq!(sorted(&again), sorted(&selector));
        assert_eq!(
            again.matches(&object, &fields),
            selector.matches(&object, &fields)
        );
        let _ = selector.exact_value("metadata.name");
    }
}

/// Reads an OLMConfig in each version, converts it to the other one and back, and normalises it.
pub fn olm_configs(data: &[u8]) {
    for (version, other) in [("v1", "v2alpha1"), ("v2alpha1", "v1")] {
        let schema = olm::schema_of(version)
            .and_then(Result::ok)
            .expect("a schema");
        let validation = FieldValidation::parse("Ignore").expect("a known name");
        let Ok(read) = schema.read(data, validation) else {
            continue;
        };
        let mut object = read.object;
        if !schema.validate(&object).is_empty() {
            continue;
        }
        let _ = olm::validate_name(&object);
        let before = object.clone();
        let _ = olm::normalize(&mut object, Some(&before));
        olm::present(&mut object);
        let _ = (olm::gates(&object), olm::old_field(&object));
        let conversions = olm::conversions();
        let group = metadata::api_version(&object).rsplit_once('/');
        let api_version = group.map_or(version.to_owned(), |(group, _)| {
            format!("{group}/{version}")
        });
        let kind = metadata::kind(&object).to_owned();
        metadata::set_type(&mut object, &api_version, &kind);
        if conversions.convert(&mut object, other).is_ok() {
            let _ = conversions.convert(&mut object, version);
        }
        olm::keep_hidden_gates(&mut object, &before);
    }
}
