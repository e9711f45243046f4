//! The bytes of stored objects: JSON in the storage version, without a resource version.

use bytes::Bytes;
use portunus_objects::metadata;
use portunus_objects::status::Status;
use serde_json::Value;

use crate::api::ApiResource;
use crate::failure::{Failure, Outcome};

/// An object as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// The object in the hub version, with its resource version.
    pub(crate) object: Value,
    /// The bytes of the value.
    pub(crate) bytes: Bytes,
    /// The revision of its last change.
    pub(crate) revision: i64,
}

/// Decodes a value into the object in a version, with its resource version.
pub(crate) fn decode(
    resource: &ApiResource,
    value: &[u8],
    revision: i64,
    version: &str,
) -> Outcome<Value> {
    let mut object = portunus_objects::decode::decode_object(value)
        .map_err(|error| damaged(resource, &error.to_string()))?
        .value;
    resource
        .conversions
        .convert(&mut object, version)
        .map_err(|error| damaged(resource, &error.to_string()))?;
    metadata::set(&mut object, "resourceVersion", revision.to_string());
    Ok(object)
}

impl Stored {
    /// Decodes a value into the hub version.
    pub(crate) fn decode(resource: &ApiResource, bytes: Bytes, revision: i64) -> Outcome<Stored> {
        let hub = resource.conversions.hub_version();
        let object = decode(resource, &bytes, revision, hub)?;
        Ok(Stored {
            object,
            bytes,
            revision,
        })
    }
}

/// Encodes an object in the storage version, as kube-apiserver encodes custom resources: fields
/// in alphabetical order, a line feed at the end.
pub(crate) fn encode(resource: &ApiResource, object: &Value) -> Outcome<Bytes> {
    let mut object = object.clone();
    resource
        .conversions
        .convert(&mut object, &resource.storage_version)
        .map_err(|error| Failure::from(Status::bad_request(&error.to_string())))?;
    metadata::set(&mut object, "resourceVersion", Value::Null);
    let mut bytes = serde_json::to_vec(&object)
        .map_err(|error| Failure::from(Status::internal_error(&error.to_string())))?;
    bytes.push(b'\n');
    Ok(bytes.into())
}

fn damaged(resource: &ApiResource, error: &str) -> Failure {
    let message = format!(
        "a stored object of {} cannot be read: {error}",
        resource.name
    );
    Status::internal_error(&message).into()
}
