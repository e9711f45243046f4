//! Validation of metadata at creation and at an update.

use serde_json::Value;

use crate::field::{FieldError, Path};
use crate::metadata::{
    self, check_dns1123_label, check_dns1123_subdomain, check_label_key, check_label_value,
};

/// The most bytes of all annotation keys and values of an object.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

const IMMUTABLE: &str = "field is immutable";

/// Checks one name; the second argument is whether the text is the prefix of a generated name.
pub type NameCheck = fn(name: &str, is_prefix: bool) -> Vec<String>;

/// Checks a name that must be a DNS-1123 subdomain, the rule of most resources.
#[must_use]
pub fn name_is_dns_subdomain(name: &str, is_prefix: bool) -> Vec<String> {
    check_dns1123_subdomain(&mask_trailing_dash(name, is_prefix))
}

/// Checks a name that must be a DNS-1123 label, the rule of namespaces.
#[must_use]
pub fn name_is_dns_label(name: &str, is_prefix: bool) -> Vec<String> {
    check_dns1123_label(&mask_trailing_dash(name, is_prefix))
}

/// The suffix follows a trailing dash of a prefix, so the dash is as good as a letter.
fn mask_trailing_dash(name: &str, is_prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(rest) if is_prefix && !rest.is_empty() => format!("{rest}a"),
        _ => name.to_owned(),
    }
}

/// Checks the metadata of a new object.
#[must_use]
pub fn validate_create(object: &Value, is_namespaced: bool, check: NameCheck) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    let mut check_name = |field: &str, name: &str, is_prefix: bool| {
        for text in check(name, is_prefix) {
            errors.push(FieldError::invalid(&path.child(field), name, &text));
        }
    };
    let generate_name = metadata::generate_name(object);
    if !generate_name.is_empty() {
        check_name("generateName", generate_name, true);
    }
    let name = metadata::name(object);
    if name.is_empty() {
        let text = "name or generateName is required";
        errors.push(FieldError::required(&path.child("name"), text));
    } else {
        check_name("name", name, false);
    }
    errors.extend(validate_namespace(object, is_namespaced, &path));
    errors.extend(validate_generation(object, &path));
    errors.extend(validate_maps(object, &path));
    errors.extend(validate_owners(object, &path.child("ownerReferences")));
    errors.extend(validate_finalizers(object, &path.child("finalizers")));
    errors
}

/// Checks the metadata of an object against its predecessor.
#[must_use]
pub fn validate_update(after: &Value, before: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    if metadata::is_deleting(before) {
        errors.extend(validate_no_new_finalizers(after, before, &path));
    }
    if metadata::resource_version(after).is_empty() {
        let field = path.child("resourceVersion");
        let text = "must be specified for an update";
        errors.push(FieldError::invalid(&field, "", text));
    }
    errors.extend(validate_generation(after, &path));
    let generation = metadata::generation(after);
    if generation < metadata::generation(before) {
        let field = path.child("generation");
        errors.push(FieldError::invalid(
            &field,
            generation,
            "must not be decremented",
        ));
    }
    for key in ["name", "namespace", "uid"] {
        let text = metadata::text(after, key);
        if text != metadata::text(before, key) {
            errors.push(FieldError::invalid(&path.child(key), text, IMMUTABLE));
        }
    }
    for key in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let value = |object| metadata::get(object, key).cloned().unwrap_or(Value::Null);
        if value(after) != value(before) {
            errors.push(FieldError::invalid(
                &path.child(key),
                value(after),
                IMMUTABLE,
            ));
        }
    }
    errors.extend(validate_maps(after, &path));
    errors.extend(validate_owners(after, &path.child("ownerReferences")));
    errors
}

fn validate_namespace(object: &Value, is_namespaced: bool, path: &Path) -> Vec<FieldError> {
    let field = path.child("namespace");
    let namespace = metadata::namespace(object);
    match (is_namespaced, namespace.is_empty()) {
        (true, true) => vec![FieldError::required(&field, "")],
        (true, false) => check_dns1123_label(namespace)
            .iter()
            .map(|text| FieldError::invalid(&field, namespace, text))
            .collect(),
        (false, true) => Vec::new(),
        (false, false) => vec![FieldError::forbidden(&field, "not allowed on this type")],
    }
}

fn validate_generation(object: &Value, path: &Path) -> Option<FieldError> {
    let generation = metadata::generation(object);
    let text = "must be greater than or equal to 0";
    (generation < 0).then(|| FieldError::invalid(&path.child("generation"), generation, text))
}

/// Checks labels and annotations.
fn validate_maps(object: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = path.child("labels");
    for (key, value) in metadata::labels(object) {
        let key_errors = check_label_key(key);
        errors.extend(
            key_errors
                .iter()
                .map(|text| FieldError::invalid(&field, key, text)),
        );
        let value_errors = check_label_value(value);
        errors.extend(
            value_errors
                .iter()
                .map(|text| FieldError::invalid(&field, value, text)),
        );
    }
    let field = path.child("annotations");
    let mut bytes = 0;
    for (key, value) in metadata::annotations(object) {
        bytes += key.len() + value.len();
        let key_errors = check_label_key(&key.to_lowercase());
        errors.extend(
            key_errors
                .iter()
                .map(|text| FieldError::invalid(&field, key, text)),
        );
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(&field, ANNOTATIONS_BYTES_MAX));
    }
    errors
}

fn validate_owners(object: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let owners = metadata::get(object, "ownerReferences").and_then(Value::as_array);
    let mut controller: Option<String> = None;
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let item = path.index(index);
        let api_version = text("apiVersion");
        if !api_version.is_empty() && !is_api_version(api_version) {
            let field = item.child("apiVersion");
            let text = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(&field, api_version, text));
        }
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(FieldError::required(&item.child(key), "must not be empty"));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let name = format!("{}/{}", text("kind"), text("name"));
        if let Some(first) = &controller {
            let text = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
            );
            let all = metadata::get(object, "ownerReferences").cloned();
            errors.push(FieldError::invalid(path, all.unwrap_or_default(), &text));
        } else {
            controller = Some(name);
        }
    }
    errors
}

fn is_api_version(text: &str) -> bool {
    match text.split_once('/') {
        Some((_, version)) => !version.is_empty() && !version.contains('/'),
        None => true,
    }
}

fn validate_finalizers(object: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for finalizer in metadata::finalizers(object) {
        let texts = check_label_key(finalizer);
        errors.extend(
            texts
                .iter()
                .map(|text| FieldError::invalid(path, finalizer, text)),
        );
    }
    let has = |name| metadata::finalizers(object).any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let all: Vec<&str> = metadata::finalizers(object).collect();
        let text = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, all, text));
    }
    errors
}

fn validate_no_new_finalizers(after: &Value, before: &Value, path: &Path) -> Option<FieldError> {
    let old: Vec<&str> = metadata::finalizers(before).collect();
    let mut new: Vec<String> = metadata::finalizers(after)
        .filter(|finalizer| !old.contains(finalizer))
        .map(crate::go_format::quote)
        .collect();
    if new.is_empty() {
        return None;
    }
    new.sort();
    new.dedup();
    let text = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        new.join(", ")
    );
    Some(FieldError::forbidden(&path.child("finalizers"), &text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn create(metadata: Value, is_namespaced: bool) -> Vec<String> {
        let object = json!({"metadata": metadata});
        texts(&validate_create(
            &object,
            is_namespaced,
            name_is_dns_subdomain,
        ))
    }

    #[test]
    fn create_accepts_valid_metadata() {
        let metadata = json!({"name": "a", "namespace": "n", "generateName": "a-",
            "labels": {"a/b": "c"}, "annotations": {"A/b": "any text"}, "finalizers": ["x/y"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": true}]});
        assert_eq!(create(metadata, true), Vec::<String>::new());
    }

    #[test]
    fn create_reports_every_wrong_field() {
        assert_eq!(
            create(json!({}), true),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value",
            ]
        );
        assert_eq!(
            create(
                json!({"name": "a", "namespace": "n", "generation": -1}),
                false
            ),
            [
                "metadata.namespace: Forbidden: not allowed on this type",
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
        let wrong = create(
            json!({"name": "A", "labels": {"": "b c"}, "annotations": {"x y": ""}, "finalizers": ["a b", "orphan", "foregroundDeletion"]}),
            false,
        );
        let prefixes = [
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
            "metadata.labels: Invalid value: \"\": name part must be non-empty",
            "metadata.labels: Invalid value: \"\": name part must consist",
            "metadata.labels: Invalid value: \"b c\": a valid label must be",
            "metadata.annotations: Invalid value: \"x y\": name part must consist",
            "metadata.finalizers: Invalid value: \"a b\": name part must consist",
            "metadata.finalizers: Invalid value: [\"a b\",\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
        ];
        assert_eq!(wrong.len(), prefixes.len(), "{wrong:#?}");
        for (error, prefix) in wrong.iter().zip(prefixes) {
            assert!(error.starts_with(prefix), "{error}");
        }
    }

    #[test]
    fn create_limits_the_size_of_annotations() {
        let value = "x".repeat(ANNOTATIONS_BYTES_MAX - 1);
        assert_eq!(
            create(json!({"name": "a", "annotations": {"a": value}}), false),
            Vec::<String>::new()
        );
        let value = "x".repeat(ANNOTATIONS_BYTES_MAX);
        assert_eq!(
            create(json!({"name": "a", "annotations": {"a": value}}), false),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn create_reports_wrong_owners() {
        let owners = json!([
            {"apiVersion": "a/b/c", "kind": "K", "name": "n", "controller": true},
            {"apiVersion": "v1", "kind": "K", "name": "m", "uid": "u", "controller": true},
        ]);
        let errors = create(json!({"name": "a", "ownerReferences": owners}), false);
        assert_eq!(errors.len(), 3);
        assert_eq!(
            errors[0],
            "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>"
        );
        assert_eq!(
            errors[1],
            "metadata.ownerReferences[0].uid: Required value: must not be empty"
        );
        assert!(errors[2].ends_with("Only one reference can have Controller set to true. Found \"true\" in references for K/n and K/m"));
    }

    #[test]
    fn update_refuses_changed_identity_and_new_finalizers_of_a_deleted_object() {
        let before = json!({"metadata": {"name": "a", "uid": "1", "generation": 2, "resourceVersion": "5",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}});
        assert_eq!(validate_update(&before, &before), []);
        let after = json!({"metadata": {"name": "b", "uid": "2", "generation": 1,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/z"]}});
        assert_eq!(
            texts(&validate_update(&after, &before)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x/z\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"2\": field is immutable",
            ]
        );
    }
}
