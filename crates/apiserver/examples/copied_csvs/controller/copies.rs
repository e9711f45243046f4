//! Copies of a CSV: which CSVs are copied, and what a copy contains.

use portunus_objects::metadata;
use serde_json::{Map, Value, json};

/// The annotation with the namespaces that an operator serves; empty for all.
pub const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// The label of a copy, with the namespace of its source.
pub const COPIED_FROM: &str = "olm.copiedFrom";
/// The annotation in which kubectl keeps what it applied to the source.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns whether a CSV is the source of copies: an operator that serves all namespaces.
pub fn is_source(csv: &Value) -> bool {
    metadata::label(csv, COPIED_FROM).is_none()
        && metadata::annotation(csv, TARGET_NAMESPACES) == Some("")
        && !metadata::is_deleting(csv)
}

/// Returns the copy of a source in a namespace.
pub fn copy_of(source: &Value, namespace: &str) -> Value {
    let (name, from) = (metadata::name(source), metadata::namespace(source));
    let mut labels = texts(source, "labels");
    labels.insert(COPIED_FROM.to_owned(), from.into());
    let mut annotations = texts(source, "annotations");
    annotations.remove(TARGET_NAMESPACES);
    annotations.remove(LAST_APPLIED);
    let mut status = source["status"].as_object().cloned().unwrap_or_default();
    status.insert("reason".to_owned(), "Copied".into());
    let message = format!("the operator runs in {from} and serves this namespace");
    status.insert("message".to_owned(), message.into());
    let mut copy = json!({
        "apiVersion": source["apiVersion"],
        "kind": source["kind"],
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "status": status,
    });
    if !annotations.is_empty() {
        copy["metadata"]["annotations"] = annotations.into();
    }
    if let Some(spec) = source.get("spec") {
        copy["spec"] = spec.clone();
    }
    copy
}

/// Returns the present copy with everything but its status as wanted; none if it is so already.
pub fn replacement(present: &Value, wanted: &Value) -> Option<Value> {
    let mut after = present.clone();
    for name in ["labels", "annotations"] {
        let value = wanted["metadata"][name].clone();
        metadata::set(&mut after, name, value);
    }
    if let Some(object) = after.as_object_mut() {
        match wanted.get("spec") {
            Some(spec) => object.insert("spec".to_owned(), spec.clone()),
            None => object.remove("spec"),
        };
    }
    (after != *present).then_some(after)
}

/// Returns the present copy with the status as wanted; none if it is so already.
pub fn with_status(present: &Value, wanted: &Value) -> Option<Value> {
    let mut after = present.clone();
    after["status"] = wanted["status"].clone();
    (after != *present).then_some(after)
}

fn texts(object: &Value, key: &str) -> Map<String, Value> {
    let texts = metadata::get(object, key).and_then(Value::as_object);
    texts.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Value {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "etcd.v1", "namespace": "operators", "uid": "1",
                "labels": {"a": "b"},
                "annotations": {TARGET_NAMESPACES: "", LAST_APPLIED: "{}"}},
            "spec": {"version": "1.0.0"},
            "status": {"phase": "Succeeded", "reason": "InstallSucceeded"},
        })
    }

    #[test]
    fn copy_has_the_content_of_its_source_and_names_it() {
        assert_eq!(
            copy_of(&source(), "tenant"),
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                "metadata": {"name": "etcd.v1", "namespace": "tenant",
                    "labels": {"a": "b", COPIED_FROM: "operators"}},
                "spec": {"version": "1.0.0"},
                "status": {"phase": "Succeeded", "reason": "Copied",
                    "message": "the operator runs in operators and serves this namespace"},
            })
        );
    }

    #[test]
    fn only_operators_for_all_namespaces_are_sources() {
        assert!(is_source(&source()));
        assert!(!is_source(&copy_of(&source(), "tenant")));
        for annotations in [json!({}), json!({TARGET_NAMESPACES: "a,b"})] {
            let mut csv = source();
            csv["metadata"]["annotations"] = annotations;
            assert!(!is_source(&csv), "{csv}");
        }
    }

    #[test]
    fn replacement_and_status_change_only_what_differs() {
        let wanted = copy_of(&source(), "tenant");
        let mut present = wanted.clone();
        present["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(replacement(&present, &wanted), None);
        assert_eq!(with_status(&present, &wanted), None);
        let expected = present.clone();
        present["spec"]["version"] = "0.9.0".into();
        assert_eq!(replacement(&present, &wanted), Some(expected.clone()));
        let mut present = expected.clone();
        present["status"] = json!({});
        assert_eq!(with_status(&present, &wanted), Some(expected));
    }
}
