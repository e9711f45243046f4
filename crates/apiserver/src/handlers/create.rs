//! Creating an object.

use http::{Response, StatusCode};
use portunus_objects::metadata::{
    self, GENERATED_SUFFIX_LENGTH, GENERATED_SUFFIX_LETTERS, generated_name,
};
use portunus_objects::status::Status;
use portunus_objects::timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::context::Context;
use super::write::{key_of, place, prepare_create, put_in_store, read_body};
use crate::body::Body;
use crate::failure::Outcome;
use crate::respond::now_unix_s;
use crate::store::encode;

/// How many generated names are tried.
const GENERATED_NAMES_MAX: usize = 8;
const RETRY_AFTER_S: u32 = 1;

pub(super) async fn create(context: &Context<'_>) -> Outcome<Response<Body>> {
    context.printing()?;
    let (validation, is_dry_run) = context.write_options("CreateOptions")?;
    let mut object = read_body(context, validation)?;
    place(context, &mut object)?;
    if !matches!(metadata::resource_version(&object), "" | "0") {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::bad_request(why).into());
    }
    metadata::set(&mut object, "resourceVersion", Value::Null);
    metadata::set(&mut object, "uid", Uuid::new_v4().to_string());
    let created = timestamp::format(now_unix_s()).unwrap_or_default();
    metadata::set(&mut object, "creationTimestamp", created);
    let generates_name = metadata::name(&object).is_empty();
    let attempts = if generates_name {
        GENERATED_NAMES_MAX
    } else {
        1
    };
    let mut name = String::new();
    let mut is_deleting = false;
    for _ in 0..attempts {
        let mut attempt = object.clone();
        if generates_name && !metadata::generate_name(&attempt).is_empty() {
            let generated = generated_name(metadata::generate_name(&attempt), &random_suffix());
            metadata::set(&mut attempt, "name", generated);
        }
        let prepared = prepare_create(context, attempt)?;
        match put(context, &prepared.object, is_dry_run).await? {
            Created::Done(object) => {
                prepared.warn(context);
                return context.answer_object(StatusCode::CREATED, object);
            }
            Created::NameTaken { by_deleted } => is_deleting = by_deleted,
        }
        metadata::name(&prepared.object).clone_into(&mut name);
    }
    let resource = &context.target.resource.name;
    if generates_name {
        return Err(Status::generated_name_taken(resource, &name, RETRY_AFTER_S).into());
    }
    let mut status = Status::already_exists(resource, &name);
    if is_deleting {
        status.message = format!("object is being deleted: {}", status.message);
    }
    Err(status.into())
}

/// What an attempt to create did.
enum Created {
    /// The object is stored.
    Done(Value),
    /// Another object has the name; it may wait for its finalizers.
    NameTaken { by_deleted: bool },
}

/// Stores a new object.
async fn put(context: &Context<'_>, object: &Value, is_dry_run: bool) -> Outcome<Created> {
    let taken = |kv| -> Outcome<Created> {
        let by_deleted = metadata::is_deleting(&context.stored(kv)?.object);
        Ok(Created::NameTaken { by_deleted })
    };
    let bytes = encode(context.target.resource, object)?;
    let key = key_of(context, object);
    let store = context.store();
    if is_dry_run {
        let read = store.get(key.as_bytes(), Default::default()).await;
        let read = read.map_err(|error| context.store_failure(&error))?;
        return read
            .kv
            .map_or_else(|| Ok(Created::Done(object.clone())), taken);
    }
    let written = put_in_store(context, &key, bytes, 0).await?;
    if !written.succeeded {
        let gone = Created::NameTaken { by_deleted: false };
        return written.kv.map_or(Ok(gone), taken);
    }
    let mut object = object.clone();
    metadata::set(&mut object, "resourceVersion", written.revision.to_string());
    Ok(Created::Done(object))
}

fn random_suffix() -> String {
    let letters = GENERATED_SUFFIX_LETTERS.as_bytes();
    let random = Uuid::new_v4();
    // The first bytes of a random id are all random.
    let bytes = random.as_bytes().iter().take(GENERATED_SUFFIX_LENGTH);
    bytes
        .map(|byte| char::from(letters[usize::from(*byte) % letters.len()]))
        .collect()
}
