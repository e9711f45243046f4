//! The messages of the kinds of the core group, with the field numbers of Kubernetes.

use crate::protobuf::{MicroTime, ObjectMeta, Time};
use serde::Serialize;

/// `core/v1.Namespace`.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct Namespace {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<NamespaceSpec>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<NamespaceStatus>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
struct NamespaceSpec {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
struct NamespaceStatus {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    phase: String,
}

/// `core/v1.Event`, without the fields that are not served.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    involved_object: Option<ObjectReference>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<EventSource>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    first_timestamp: Option<Time>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    last_timestamp: Option<Time>,
    #[prost(int32, tag = "8")]
    #[serde(skip_serializing_if = "is_zero")]
    count: i32,
    #[prost(string, tag = "9")]
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    kind: String,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "MicroTime::is_absent")]
    event_time: Option<MicroTime>,
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "String::is_empty")]
    action: String,
    #[prost(string, tag = "14")]
    #[serde(skip_serializing_if = "String::is_empty")]
    reporting_component: String,
    #[prost(string, tag = "15")]
    #[serde(skip_serializing_if = "String::is_empty")]
    reporting_instance: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
struct EventSource {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    component: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    host: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    field_path: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
fn is_zero(number: &i32) -> bool {
    *number == 0
}
