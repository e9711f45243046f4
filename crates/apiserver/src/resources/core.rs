//! The kinds of the core group that the controllers of this repository need.

use std::time::Duration;

use crate::{Definition, VersionDefinition};
use portunus_apis::Lifecycle;
use portunus_objects::metadata::name_is_dns_label;
use portunus_objects::table::Columns;
use serde_json::json;

use super::{ResourcesError, core_protobuf};

/// Namespaces. They are names only: deleting one does not delete the objects in it.
pub fn namespaces() -> Result<Definition, ResourcesError> {
    let schema = json!({
        "type": "object",
        "description": "Namespace is a scope for names.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "The wanted state.",
                "properties": {"finalizers": {"type": "array", "items": {"type": "string"}}},
            },
            "status": {
                "type": "object",
                "description": "The state.",
                "properties": {"phase": {"type": "string", "description": "Active or Terminating."}},
            },
        },
    });
    let version = VersionDefinition::new("v1", Lifecycle::always(), schema)?;
    let version = version
        .with_protobuf::<core_protobuf::Namespace>()
        .with_columns(Columns::named().age()?);
    Ok(Definition::new("", "Namespace", "namespaces")
        .cluster_scoped()
        .with_short_names(["ns"])
        .with_name_check(name_is_dns_label)
        .with_unconditional_update()
        .with_version(version))
}

/// Events: what happened to other objects. They expire.
pub fn events(ttl: Duration) -> Result<Definition, ResourcesError> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let time = |description: &str| json!({"type": "string", "format": "date-time", "nullable": true, "description": description});
    let reference = json!({
        "type": "object",
        "description": "The object that the event is about.",
        "properties": {
            "apiVersion": {"type": "string"},
            "fieldPath": {"type": "string"},
            "kind": {"type": "string"},
            "name": {"type": "string"},
            "namespace": {"type": "string"},
            "resourceVersion": {"type": "string"},
            "uid": {"type": "string"},
        },
    });
    let schema = json!({
        "type": "object",
        "description": "Event is a report of something that happened.",
        "properties": {
            "action": text("What was done."),
            "count": {"type": "integer", "format": "int32", "description": "How often it happened."},
            "eventTime": time("The time of the first occurrence."),
            "firstTimestamp": time("The time of the first occurrence."),
            "involvedObject": reference,
            "lastTimestamp": time("The time of the last occurrence."),
            "message": text("A text for people."),
            "reason": text("A word for programs."),
            "reportingComponent": text("The name of the controller."),
            "reportingInstance": text("The name of its instance."),
            "source": {
                "type": "object",
                "properties": {"component": {"type": "string"}, "host": {"type": "string"}},
            },
            "type": text("Normal or Warning."),
        },
    });
    let columns = Columns::named()
        .column("Last Seen", "date", ".lastTimestamp")?
        .column("Type", "string", ".type")?
        .column("Reason", "string", ".reason")?
        .column("Object", "string", ".involvedObject.name")?
        .column("Message", "string", ".message")?;
    let version = VersionDefinition::new("v1", Lifecycle::always(), schema)?;
    Ok(Definition::new("", "Event", "events")
        .with_short_names(["ev"])
        .with_ttl(ttl)
        .with_unconditional_update()
        .with_selectable_fields([
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "reason",
            "type",
        ])
        .with_version(
            version
                .with_protobuf::<core_protobuf::Event>()
                .with_columns(columns),
        ))
}
