//! The resources of Kubernetes' sample API server: Flunder in two versions, and Fischer.
//!
//! v1alpha1 of a Flunder has one reference and its type; v1beta1 has a field per type. The rules are
//! those of the sample API server, and its quirks too: an unknown type is dropped by v1alpha1, and
//! an update is not validated.

use portunus_apis::Lifecycle;
use portunus_apiserver::{Definition, DefinitionError, Rules, VersionDefinition};
use portunus_objects::convert::{Conversions, ConvertError};
use portunus_objects::field::{FieldError, Path};
use serde_json::{Map, Value, json};

/// The API group.
pub const GROUP: &str = "wardle.example.com";
const FLUNDER: &str = "Flunder";
const FISCHER: &str = "Fischer";

/// Returns both resources.
///
/// # Errors
/// If a schema is not structural.
pub fn resources() -> Result<[Definition; 2], DefinitionError> {
    // v1alpha1 is deprecated, v1beta1 is not yet, as in the sample API server.
    let version = |name, schema| {
        let since = if name == "v1alpha1" { "1.34" } else { "1.37" };
        let version = VersionDefinition::new(name, Lifecycle::since(since), schema);
        version.map(|version| version.served_by_default(true))
    };
    let conversions = Conversions::hub(GROUP, "v1beta1");
    let flunders = Definition::new(GROUP, FLUNDER, "flunders")
        .with_version(version(
            "v1alpha1",
            flunder(&["reference", "referenceType"]),
        )?)
        .with_version(version(
            "v1beta1",
            flunder(&["flunderReference", "fischerReference", "referenceType"]),
        )?)
        .with_conversions(conversions.version("v1alpha1", to_v1beta1, to_v1alpha1))
        .with_name_check(name_is_path_segment)
        .with_rules(FlunderRules);
    let fischers = Definition::new(GROUP, FISCHER, "fischers")
        .cluster_scoped()
        .with_version(version("v1alpha1", fischer())?)
        .with_name_check(name_is_path_segment)
        .with_rules(FischerRules);
    Ok([flunders, fischers])
}

/// Checks a name that only has to be a part of a path.
fn name_is_path_segment(name: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let unwanted = ["/", "%"].iter().filter(|letter| name.contains(**letter));
    unwanted
        .map(|letter| format!("may not contain '{letter}'"))
        .collect()
}

fn flunder(fields: &[&str]) -> Value {
    let fields = fields
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})));
    let fields: Map<String, Value> = fields.collect();
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "default": {}, "properties": fields},
        "status": {"type": "object", "default": {}},
    }})
}

fn fischer() -> Value {
    json!({"type": "object", "properties": {
        "disallowedFlunders": {"type": "array", "items": {"type": "string"}},
    }})
}

fn spec(object: &Value, field: &str) -> String {
    let value = object.get("spec").and_then(|spec| spec.get(field));
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Sets the fields of the spec that are not empty, and removes all others.
fn set_spec(object: &mut Value, fields: [(&str, String); 3]) {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let fields = fields.map(|(name, value)| (name.to_owned(), Value::String(value)));
    if let Some(object) = object.as_object_mut() {
        let fields: Map<String, Value> = fields.collect();
        object.insert("spec".to_owned(), Value::Object(fields));
    }
}

#[allow(clippy::unnecessary_wraps)] // other conversions can fail
fn to_v1beta1(object: &mut Value) -> Result<(), ConvertError> {
    let (reference, kind) = (spec(object, "reference"), spec(object, "referenceType"));
    let none = String::new();
    let (flunder, fischer, kind) = match &*kind {
        FLUNDER => (reference, none, kind),
        FISCHER => (none, reference, kind),
        _ => (none.clone(), none.clone(), none),
    };
    let flunder = ("flunderReference", flunder);
    let fischer = ("fischerReference", fischer);
    set_spec(object, [flunder, fischer, ("referenceType", kind)]);
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // other conversions can fail
fn to_v1alpha1(object: &mut Value) -> Result<(), ConvertError> {
    let kind = spec(object, "referenceType");
    let (reference, kind) = match &*kind {
        FLUNDER => (spec(object, "flunderReference"), kind),
        FISCHER => (spec(object, "fischerReference"), kind),
        _ => (String::new(), String::new()),
    };
    let nothing = ("", String::new());
    set_spec(
        object,
        [("reference", reference), ("referenceType", kind), nothing],
    );
    Ok(())
}

struct FlunderRules;

impl Rules for FlunderRules {
    fn prepare(&self, version: &str, after: &mut Value, _before: Option<&Value>) {
        remove_empty(after.get_mut("spec"));
        let is_defaulted = version == "v1alpha1"
            && !spec(after, "reference").is_empty()
            && spec(after, "referenceType").is_empty();
        if is_defaulted && let Some(spec) = after.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("referenceType".to_owned(), FLUNDER.into());
        }
    }

    fn normalize(&self, after: &mut Value, before: Option<&Value>) -> Result<(), Vec<FieldError>> {
        if before.is_none() {
            check(after)?;
        }
        // The sample API server stores v1alpha1, which has fewer fields.
        let converted = to_v1alpha1(after).and_then(|()| to_v1beta1(after));
        converted.map_err(|_| Vec::new())
    }
}

/// Checks a new Flunder.
fn check(object: &Value) -> Result<(), Vec<FieldError>> {
    let flunder = spec(object, "flunderReference");
    let fischer = spec(object, "fischerReference");
    let kind = spec(object, "referenceType");
    let invalid = |field: &str, value: &str, detail: &str| {
        FieldError::invalid(&Path::new("spec").child(field), value, detail)
    };
    let references = [
        ("flunderReference", &flunder, FLUNDER),
        ("fischerReference", &fischer, FISCHER),
    ];
    let unwanted = references
        .iter()
        .find(|it| !it.1.is_empty() && it.2 != kind);
    let missing = references.iter().find(|it| it.1.is_empty() && it.2 == kind);
    let mut errors = Vec::new();
    // Only the first problem is shown.
    if !flunder.is_empty() && !fischer.is_empty() {
        let detail = "cannot be set with flunderReference at the same time";
        errors.push(invalid("fischerReference", &fischer, detail));
    } else if let Some((field, value, own)) = unwanted {
        let detail = format!("cannot be set if referenceType is not {own}");
        errors.push(invalid(field, value, &detail));
    } else if let Some((field, value, own)) = missing {
        let detail = format!("cannot be empty if referenceType is {own}");
        errors.push(invalid(field, value, &detail));
    }
    if !matches!(&*kind, "" | FLUNDER | FISCHER) {
        errors.push(invalid(
            "referenceType",
            &kind,
            "must be Flunder or Fischer",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(errors)
}

struct FischerRules;

impl Rules for FischerRules {
    fn prepare(&self, _version: &str, after: &mut Value, _before: Option<&Value>) {
        let list = after.get("disallowedFlunders").and_then(Value::as_array);
        if list.is_some_and(Vec::is_empty)
            && let Some(object) = after.as_object_mut()
        {
            object.remove("disallowedFlunders");
        }
    }
}

/// Removes empty texts: a Go server does not show them.
fn remove_empty(fields: Option<&mut Value>) {
    if let Some(fields) = fields.and_then(Value::as_object_mut) {
        fields.retain(|_, value| value.as_str() != Some(""));
    }
}
