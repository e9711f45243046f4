//! What happens to an object between the body of a request and the store.

use bytes::Bytes;
use portunus_client::kubernetes::{Error, PutOptions, PutResponse};
use portunus_objects::field::{FieldError, Path};
use portunus_objects::metadata;
use portunus_objects::schema::{FieldValidation, ReadError};
use portunus_objects::status::Status;
use serde_json::Value;

use super::context::Context;
use crate::failure::{Failure, Outcome};
use crate::negotiate::{BodyFormat, body_format};
use crate::protobuf;
use crate::store::{Stored, encode};

/// How often a write that lost a race is tried again before the client must.
pub(super) const ATTEMPTS_MAX: usize = 16;
/// How many bytes of a body that is not JSON are shown.
const SHOWN_BYTES_MAX: usize = 30;

/// Fields of the metadata that the server sets and clients cannot change.
const SYSTEM_FIELDS: [&str; 2] = ["creationTimestamp", "generation"];
/// Fields of the metadata that the server sets once; clients may leave them out.
const DELETION_FIELDS: [&str; 2] = ["deletionTimestamp", "deletionGracePeriodSeconds"];

/// An object that is ready for the store, in the hub version.
pub(super) struct Prepared {
    pub(super) object: Value,
    warnings: Vec<String>,
}

impl Prepared {
    /// Sends the warnings to the client.
    pub(super) fn warn(&self, context: &Context<'_>) {
        for warning in &self.warnings {
            context.warn(warning);
        }
    }
}

/// Reads the object of a body: known fields, the type of the resource.
pub(super) fn read_body(context: &Context<'_>, validation: FieldValidation) -> Outcome<Value> {
    let schema = &context.target.version.schema;
    let read = match decode_protobuf(context)? {
        Some(object) => schema.read_value(object, Vec::new(), validation),
        None => schema.read(&context.body, validation),
    };
    let read = read.map_err(|error| read_failure(context, &error))?;
    for warning in &read.warnings {
        context.warn(warning);
    }
    let mut object = read.object;
    check_type(context, &mut object)?;
    Ok(object)
}

/// Decodes a body in protobuf format; none if the body is JSON.
fn decode_protobuf(context: &Context<'_>) -> Outcome<Option<Value>> {
    let decoder = context.target.version.protobuf;
    match (body_format(context.headers, decoder.is_some())?, decoder) {
        (BodyFormat::Protobuf, Some(decoder)) => {
            let kind = &context.target.resource.definition.kind;
            let decoded = protobuf::decode(&context.body, decoder);
            let decoded = decoded.map_err(|error| {
                let why = format!(
                    "the object provided is unrecognized (must be of type {kind}): {error}"
                );
                Failure::from(Status::bad_request(&why))
            });
            decoded.map(Some)
        }
        _ => Ok(None),
    }
}

/// Returns the answer to a body that is no object of the resource.
pub(super) fn read_failure(context: &Context<'_>, error: &ReadError) -> Failure {
    let kind = &context.target.resource.definition.kind;
    let text = match error {
        ReadError::Decode(error) => {
            format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error} ({})",
                summary(&context.body)
            )
        }
        error => format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {error}",
            context.target.version.name
        ),
    };
    Status::bad_request(&text).into()
}

/// Returns the beginning of a body: as text if it looks like an object, in hexadecimal otherwise.
fn summary(body: &[u8]) -> String {
    let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
    let mut text = match shown.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if shown.len() < body.len() {
        text.push_str(" ...");
    }
    text
}

/// Checks `apiVersion` and `kind`; missing ones are those of the resource.
pub(super) fn check_type(context: &Context<'_>, object: &mut Value) -> Outcome<()> {
    let resource = context.target.resource;
    let expected = resource.api_version(&context.target.version.name);
    let api_version = metadata::api_version(object).to_owned();
    if !api_version.is_empty() && api_version != expected {
        let why = format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        );
        return Err(Status::bad_request(&why).into());
    }
    let kind = metadata::kind(object).to_owned();
    let expected_kind = &resource.definition.kind;
    if !kind.is_empty() && kind != *expected_kind {
        let detail = format!("must be {expected_kind}");
        let error = FieldError::invalid(&Path::new("kind"), kind, &detail);
        let name = metadata::name(object);
        return Err(Status::invalid(&resource.kind, name, &[error]).into());
    }
    metadata::set_type(object, &expected, expected_kind);
    Ok(())
}

/// Gives an object the namespace of the path, or refuses another one.
pub(super) fn place(context: &Context<'_>, object: &mut Value) -> Outcome<()> {
    let namespace = context.namespace();
    let own = metadata::namespace(object);
    if namespace.is_empty() {
        // Kubernetes ignores the namespace of a cluster-scoped object.
        metadata::set(object, "namespace", Value::Null);
        return Ok(());
    }
    if !own.is_empty() && own != namespace {
        let why =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why).into());
    }
    metadata::set(object, "namespace", namespace);
    Ok(())
}

/// Completes, defaults, converts and validates a new object in the version of the request.
pub(super) fn prepare_create(context: &Context<'_>, mut object: Value) -> Outcome<Prepared> {
    let target = context.target;
    if target.version.has_status {
        remove_status(&mut object);
    }
    for field in [
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        metadata::set(&mut object, field, Value::Null);
    }
    metadata::set(&mut object, "generation", 1);
    let rules = &target.resource.definition.rules;
    rules.prepare(&target.version.name, &mut object, None);
    target.version.schema.default_values(&mut object);
    let definition = &target.resource.definition;
    let mut errors =
        metadata::validate_create(&object, definition.namespaced, definition.name_check);
    errors.extend(target.version.schema.validate(&object));
    finish(context, object, None, errors)
}

/// Completes, defaults, converts and validates the object of an update in the version of the
/// request. `before` is the stored object in the hub version.
pub(super) fn prepare_update(
    context: &Context<'_>,
    mut object: Value,
    before: &Value,
) -> Outcome<Prepared> {
    let target = context.target;
    let before_here = context.to_request_version(before.clone())?;
    if context.info.subresource == "status" {
        object = with_status_of(&before_here, &object);
    } else if target.version.has_status {
        remove_status(&mut object);
        copy_status(&before_here, &mut object);
    }
    for field in SYSTEM_FIELDS {
        let value = metadata::get(&before_here, field).cloned();
        metadata::set(&mut object, field, value.unwrap_or_default());
    }
    if metadata::uid(&object).is_empty() {
        metadata::set(&mut object, "uid", metadata::uid(before));
    }
    for field in DELETION_FIELDS {
        if let Some(value) = metadata::get(&before_here, field).cloned() {
            metadata::set(&mut object, field, value);
        }
    }
    for field in ["managedFields", "selfLink"] {
        metadata::set(&mut object, field, Value::Null);
    }
    let rules = &target.resource.definition.rules;
    rules.prepare(&target.version.name, &mut object, Some(&before_here));
    target.version.schema.default_values(&mut object);
    let mut errors = metadata::validate_update(&object, &before_here);
    let schema = &target.version.schema;
    errors.extend(schema.validate_update(&object, &before_here));
    let mut prepared = finish(context, object, Some(before), errors)?;
    if is_new_generation(&prepared.object, before) {
        let generation = metadata::generation(before).saturating_add(1);
        metadata::set(&mut prepared.object, "generation", generation);
    }
    Ok(prepared)
}

/// Converts an object to the hub version and applies the rules of the resource.
fn finish(
    context: &Context<'_>,
    mut object: Value,
    before: Option<&Value>,
    mut errors: Vec<FieldError>,
) -> Outcome<Prepared> {
    let resource = context.target.resource;
    let rules = &resource.definition.rules;
    let mut warnings = Vec::new();
    if errors.is_empty() {
        context.convert(&mut object, resource.conversions.hub_version())?;
        match rules.normalize(&mut object, before) {
            Err(wrong) => errors.extend(wrong),
            Ok(()) => {
                let review = rules.review(&object, before);
                errors.extend(review.errors);
                warnings = review.warnings;
            }
        }
    }
    if !errors.is_empty() {
        let name = match metadata::name(&object) {
            "" => metadata::generate_name(&object),
            name => name,
        };
        return Err(Status::invalid(&resource.kind, name, &errors).into());
    }
    Ok(Prepared { object, warnings })
}

fn remove_status(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
}

fn copy_status(from: &Value, to: &mut Value) {
    if let (Some(status), Some(map)) = (from.get("status"), to.as_object_mut()) {
        map.insert("status".to_owned(), status.clone());
    }
}

/// Returns the stored object with the status of another one. Of the metadata only the resource
/// version of the request counts.
fn with_status_of(before: &Value, request: &Value) -> Value {
    let mut object = before.clone();
    remove_status(&mut object);
    copy_status(request, &mut object);
    let version = metadata::resource_version(request).to_owned();
    metadata::set(&mut object, "resourceVersion", version);
    object
}

/// Returns whether anything changed beside metadata and status.
fn is_new_generation(after: &Value, before: &Value) -> bool {
    let (Some(after), Some(before)) = (after.as_object(), before.as_object()) else {
        return after != before;
    };
    let is_counted = |key: &str| !matches!(key, "metadata" | "status" | "apiVersion" | "kind");
    let counted = |map: &serde_json::Map<String, Value>| {
        map.iter().filter(|(key, _)| is_counted(key)).count()
    };
    counted(after) != counted(before)
        || after
            .iter()
            .any(|(key, value)| is_counted(key) && before.get(key) != Some(value))
}

/// The result of an attempt to write.
pub(super) enum Written {
    /// The object is stored at this revision, or was stored already.
    Done(i64),
    /// Another request changed the object; this is its state, none if it was deleted.
    Lost(Option<Stored>),
}

/// Writes an object over its predecessor, unless nothing changed.
pub(super) async fn put(
    context: &Context<'_>,
    object: &Value,
    before: &Stored,
) -> Outcome<Written> {
    let bytes = encode(context.target.resource, object)?;
    if bytes == before.bytes {
        return Ok(Written::Done(before.revision));
    }
    let key = key_of(context, object);
    let written = put_in_store(context, &key, bytes, before.revision).await?;
    if written.succeeded {
        return Ok(Written::Done(written.revision));
    }
    let current = written.kv.map(|kv| context.stored(kv)).transpose()?;
    Ok(Written::Lost(current))
}

/// Returns the lease of an object that is written now; 0 if the resource has no TTL.
async fn lease(context: &Context<'_>) -> Outcome<i64> {
    let Some(ttl) = context.target.resource.definition.ttl else {
        return Ok(0);
    };
    let leases = &context.shared.leases;
    let lease = leases.lease(context.store(), ttl).await;
    lease.map_err(|error| context.store_failure(&error))
}

/// Writes an object if its revision is the expected one; with a lease if its resource has a TTL.
pub(super) async fn put_in_store(
    context: &Context<'_>,
    key: &str,
    bytes: Bytes,
    expected_revision: i64,
) -> Outcome<PutResponse> {
    let store = context.store();
    let write = |lease_id| {
        let options = PutOptions {
            get_on_failure: true,
            lease_id,
        };
        store.optimistic_put(key.as_bytes(), bytes.clone(), expected_revision, options)
    };
    let lease_id = lease(context).await?;
    let written = match write(lease_id).await {
        Err(Error::LeaseNotFound) if lease_id != 0 => {
            // The shared lease was revoked or has expired, and nothing was written.
            context.shared.leases.forget(lease_id).await;
            write(lease(context).await?).await
        }
        written => written,
    };
    written.map_err(|error| context.store_failure(&error))
}

/// Returns the key of an object.
pub(super) fn key_of(context: &Context<'_>, object: &Value) -> String {
    let namespace = context.target.resource.definition.namespaced;
    let namespace = if namespace {
        metadata::namespace(object)
    } else {
        ""
    };
    context.keys.object(namespace, metadata::name(object))
}

/// Returns the answer to a write that lost every race.
pub(super) fn contended(context: &Context<'_>, name: &str) -> Failure {
    let why = format!(
        "the object was modified by other requests during {ATTEMPTS_MAX} attempts; please try again"
    );
    Status::conflict(&context.target.resource.name, name, &why).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_a_body_is_short() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"{\"a\""), "{\"a\"");
        assert_eq!(summary(b"[1]"), "5b315d");
        let long = format!("{{{}", "x".repeat(40));
        assert_eq!(
            summary(long.as_bytes()),
            format!("{{{} ...", "x".repeat(29))
        );
    }
}
