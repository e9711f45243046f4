//! Creating an object.

use http::{Response, StatusCode};
use portunus_client::kubernetes::PutOptions;
use portunus_objects::metadata::{
    self, GENERATED_SUFFIX_LENGTH, GENERATED_SUFFIX_LETTERS, generated_name,
};
use portunus_objects::status::Status;
use portunus_objects::timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::context::Context;
use super::write::{key_of, lease, place, prepare_create, put_failure, read_body};
use crate::body::Body;
use crate::failure::Outcome;
use crate::respond::now_unix_s;
use crate::store::encode;

/// How many generated names are tried.
const GENERATED_NAMES_MAX: usize = 8;
const RETRY_AFTER_S: u32 = 1;

pub(super) async fn create(context: &Context<'_>) -> Outcome<Response<Body>> {
    context.printing()?;
    let validation = context.field_validation("CreateOptions")?;
    let is_dry_run = context.is_dry_run("CreateOptions")?;
    let mut object = read_body(context, validation)?;
    place(context, &mut object)?;
    if !metadata::resource_version(&object).is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::bad_request(why).into());
    }
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
    for _ in 0..attempts {
        let mut attempt = object.clone();
        if generates_name && !metadata::generate_name(&attempt).is_empty() {
            let generated = generated_name(metadata::generate_name(&attempt), &random_suffix());
            metadata::set(&mut attempt, "name", generated);
        }
        let prepared = prepare_create(context, attempt)?;
        if let Some(object) = put(context, &prepared.object, is_dry_run).await? {
            prepared.warn(context);
            return context.answer_object(StatusCode::CREATED, object);
        }
        metadata::name(&prepared.object).clone_into(&mut name);
    }
    let resource = &context.target.resource.name;
    if generates_name {
        return Err(Status::generated_name_taken(resource, &name, RETRY_AFTER_S).into());
    }
    Err(Status::already_exists(resource, &name).into())
}

/// Stores a new object; none if the name is taken.
async fn put(context: &Context<'_>, object: &Value, is_dry_run: bool) -> Outcome<Option<Value>> {
    let bytes = encode(context.target.resource, object)?;
    let key = key_of(context, object);
    let store = context.store();
    if is_dry_run {
        let read = store.get(key.as_bytes(), Default::default()).await;
        let read = read.map_err(|error| context.store_failure(&error))?;
        return Ok(read.kv.is_none().then(|| object.clone()));
    }
    let lease_id = lease(context).await?;
    let options = PutOptions {
        lease_id,
        ..PutOptions::default()
    };
    let written = store
        .optimistic_put(key.as_bytes(), bytes, 0, options)
        .await;
    let written = match written {
        Ok(written) => written,
        Err(error) => return Err(put_failure(context, lease_id, &error).await),
    };
    if !written.succeeded {
        return Ok(None);
    }
    let mut object = object.clone();
    metadata::set(&mut object, "resourceVersion", written.revision.to_string());
    Ok(Some(object))
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
