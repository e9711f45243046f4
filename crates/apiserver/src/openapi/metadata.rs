//! Schemas of metadata and of the options and answers that all resources share.

use serde_json::{Map, Value, json};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const OWNER: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";
const PRECONDITIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions";

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn texts(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "additionalProperties": {"type": "string", "default": ""},
    })
}

/// Returns the shared schemas; `root` is where references point to.
pub(super) fn schemas(root: &str) -> Map<String, Value> {
    let reference = |to: &str| json!({"$ref": format!("{root}{to}")});
    Map::from_iter([
        (OBJECT_META.to_owned(), object_meta(&reference(OWNER))),
        (LIST_META.to_owned(), list_meta()),
        (OWNER.to_owned(), owner()),
        (PRECONDITIONS.to_owned(), preconditions()),
        (
            DELETE_OPTIONS.to_owned(),
            delete_options(&reference(PRECONDITIONS)),
        ),
        (STATUS.to_owned(), status(&reference(LIST_META))),
        (
            PATCH.to_owned(),
            json!({"type": "object", "description": "A patch in one of the media types of the operation."}),
        ),
    ])
}

fn object_meta(owner: &Value) -> Value {
    json!({
        "type": "object",
        "description": "Metadata that every stored object has.",
        "properties": {
            "annotations": texts("Keys and values for tools; they cannot be selected by."),
            "creationTimestamp": time("The time at which the server created the object. Read-only."),
            "deletionGracePeriodSeconds": number("The seconds between the deletion and the removal. Read-only."),
            "deletionTimestamp": time("The time at which the deletion was requested; the object goes when its finalizers are gone. Read-only."),
            "finalizers": {
                "type": "array",
                "description": "Names of tasks that must be done before the object is removed.",
                "items": {"type": "string", "default": ""},
                "x-kubernetes-list-type": "set",
            },
            "generateName": text("The prefix of a name that the server completes, if there is no name."),
            "generation": number("Grows with every change of the wanted state. Read-only."),
            "labels": texts("Keys and values by which objects can be selected."),
            "name": text("The name, unique within a namespace and a resource."),
            "namespace": text("The namespace of the object; empty for cluster-scoped resources."),
            "ownerReferences": {
                "type": "array",
                "description": "The objects on which this one depends.",
                "items": owner,
            },
            "resourceVersion": text("The version of the object in the store; clients compare it for equality only. Read-only."),
            "uid": text("The id of the object, unique in time and space. Read-only."),
        },
    })
}

fn list_meta() -> Value {
    json!({
        "type": "object",
        "description": "Metadata of a list.",
        "properties": {
            "continue": text("The token with which the next part of the list can be read."),
            "remainingItemCount": number("The number of objects after this part."),
            "resourceVersion": text("The version of the list in the store."),
        },
    })
}

fn owner() -> Value {
    json!({
        "type": "object",
        "description": "An object on which another one depends.",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text("The API version of the owner."),
            "blockOwnerDeletion": {"type": "boolean", "description": "Whether the owner waits for this object when it is deleted in the foreground."},
            "controller": {"type": "boolean", "description": "Whether the owner is the managing controller."},
            "kind": text("The kind of the owner."),
            "name": text("The name of the owner."),
            "uid": text("The id of the owner."),
        },
        "x-kubernetes-map-type": "atomic",
    })
}

fn preconditions() -> Value {
    json!({
        "type": "object",
        "description": "What must hold of an object for the operation to be carried out.",
        "properties": {
            "resourceVersion": text("The resource version that the object must have."),
            "uid": text("The id that the object must have."),
        },
    })
}

fn delete_options(preconditions: &Value) -> Value {
    json!({
        "type": "object",
        "description": "Options of a deletion.",
        "properties": {
            "apiVersion": text("The version of this object."),
            "dryRun": {
                "type": "array",
                "description": "With All nothing is stored.",
                "items": {"type": "string", "default": ""},
            },
            "gracePeriodSeconds": number("The seconds to wait before the removal."),
            "kind": text("The kind of this object."),
            "preconditions": preconditions,
            "propagationPolicy": text("What happens to dependents: Orphan, Background or Foreground."),
        },
    })
}

fn status(list_meta: &Value) -> Value {
    json!({
        "type": "object",
        "description": "The result of a request that returns no object.",
        "properties": {
            "apiVersion": text("The version of this object."),
            "code": {"type": "integer", "format": "int32", "description": "The HTTP status code."},
            "details": {"type": "object", "description": "What the result is about."},
            "kind": text("The kind of this object."),
            "message": text("A text for people."),
            "metadata": list_meta,
            "reason": text("A word for programs."),
            "status": text("Success or Failure."),
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    })
}
