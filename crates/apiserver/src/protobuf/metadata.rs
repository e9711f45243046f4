//! `metav1.ObjectMeta` and its parts. Without `managedFields`, which the server does not keep.

use std::collections::BTreeMap;

use portunus_objects::timestamp;
use prost::Message;
use serde::ser::Error;
use serde::{Serialize, Serializer};

/// The metadata of an object.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// The name.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The beginning of a name that the server completes.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// The namespace.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The unique id.
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The version that the client has read.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The number of changes of the wanted state.
    #[prost(int64, tag = "7")]
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// The time of the creation.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub creation_timestamp: Option<Time>,
    /// The time of the request to delete the object.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Time::is_absent")]
    pub deletion_timestamp: Option<Time>,
    /// How long the deletion may take.
    #[prost(int64, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// The labels.
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[prost(btree_map = "string, string", tag = "12")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The objects that this one depends on.
    #[prost(message, repeated, tag = "13")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// What must happen before the object is removed.
    #[prost(string, repeated, tag = "14")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// A reference to an owner.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The kind of the owner.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The name of the owner.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The unique id of the owner.
    #[prost(string, tag = "4")]
    pub uid: String,
    /// The group and version of the owner.
    #[prost(string, tag = "5")]
    pub api_version: String,
    /// Whether the owner is the controller of the object.
    #[prost(bool, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner waits for the deletion of the object.
    #[prost(bool, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// A time; JSON has its seconds. The empty message is no time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Time {
    /// Seconds since 1970.
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    /// Nanoseconds of the second.
    #[prost(int32, optional, tag = "2")]
    pub nanos: Option<i32>,
}

/// A time; JSON has its microseconds. The empty message is no time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct MicroTime {
    /// Seconds since 1970.
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    /// Nanoseconds of the second.
    #[prost(int32, optional, tag = "2")]
    pub nanos: Option<i32>,
}

impl Time {
    /// Returns whether there is no time.
    #[must_use]
    pub fn is_absent(time: &Option<Time>) -> bool {
        time.is_none_or(|time| time.seconds.is_none() && time.nanos.is_none())
    }
}

impl MicroTime {
    /// Returns whether there is no time.
    #[must_use]
    pub fn is_absent(time: &Option<MicroTime>) -> bool {
        time.is_none_or(|time| time.seconds.is_none() && time.nanos.is_none())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(self.seconds)?)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = text(self.seconds)?;
        let seconds = seconds.trim_end_matches('Z');
        let micros = self.nanos.unwrap_or(0).clamp(0, NANOS_MAX) / 1000;
        serializer.serialize_str(&format!("{seconds}.{micros:06}Z"))
    }
}

const NANOS_MAX: i32 = 999_999_999;

fn text<E: Error>(seconds: Option<i64>) -> Result<String, E> {
    let seconds = seconds.unwrap_or(0);
    timestamp::format(seconds)
        .ok_or_else(|| E::custom(format!("the time {seconds} s after 1970 is out of range")))
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_has_the_json_of_kubernetes() {
        let metadata = ObjectMeta {
            name: "a".to_owned(),
            namespace: "ns".to_owned(),
            generation: 3,
            creation_timestamp: Some(Time {
                seconds: Some(1_600_000_000),
                nanos: Some(5),
            }),
            // What client-go sends for a time that is not set.
            deletion_timestamp: Some(Time::default()),
            labels: BTreeMap::from([("x".to_owned(), "y".to_owned())]),
            owner_references: vec![OwnerReference {
                kind: "Widget".to_owned(),
                name: "w".to_owned(),
                uid: "u".to_owned(),
                api_version: "example.io/v1".to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }],
            finalizers: vec!["f".to_owned()],
            ..ObjectMeta::default()
        };
        let decoded = ObjectMeta::decode(&*metadata.encode_to_vec()).unwrap();
        assert_eq!(
            serde_json::to_value(decoded).unwrap(),
            json!({
                "name": "a", "namespace": "ns", "generation": 3,
                "creationTimestamp": "2020-09-13T12:26:40Z",
                "labels": {"x": "y"},
                "ownerReferences": [{"kind": "Widget", "name": "w", "uid": "u",
                    "apiVersion": "example.io/v1", "controller": true}],
                "finalizers": ["f"],
            })
        );
    }

    #[test]
    fn microseconds_are_kept() {
        let time = MicroTime {
            seconds: Some(1_600_000_000),
            nanos: Some(1_234_567),
        };
        assert_eq!(
            serde_json::to_value(time).unwrap(),
            "2020-09-13T12:26:40.001234Z"
        );
    }
}
