//! Deleting one object or the objects of a collection.

use http::{Response, StatusCode};
use portunus_client::kubernetes::{self, GetOptions};
use portunus_objects::metadata;
use portunus_objects::status::Status;
use portunus_objects::table::ListMeta;
use portunus_objects::timestamp;
use serde_json::Value;

use super::context::Context;
use super::delete_options::DeleteOptions;
use super::list;
use super::list_options::ListOptions;
use super::selection::Selection;
use super::write::{ATTEMPTS_MAX, Written, contended, key_of, put};
use crate::body::Body;
use crate::failure::{Failure, Outcome};
use crate::respond::{json_response, now_unix_s};
use crate::store::Stored;

/// What a deletion did.
enum Deleted {
    /// The object is gone.
    Gone(Value),
    /// The object waits for its finalizers.
    Waiting(Value),
}

pub(super) async fn delete(context: &Context<'_>) -> Outcome<Response<Body>> {
    let printing = context.printing()?;
    let options = DeleteOptions::parse(context)?;
    let name = &context.info.name;
    match delete_one(context, context.namespace(), name, &options).await? {
        Deleted::Gone(object) => {
            let resource = &context.target.resource.name;
            let status = Status::deleted(resource, name, metadata::uid(&object));
            Ok(json_response(StatusCode::OK, &status))
        }
        Deleted::Waiting(object) => {
            let object = context.to_request_version(object)?;
            let document = printing.object(&context.target.version.columns, object);
            Ok(json_response(StatusCode::OK, &document))
        }
    }
}

pub(super) async fn delete_collection(context: &Context<'_>) -> Outcome<Response<Body>> {
    let printing = context.printing()?;
    let options = DeleteOptions::parse(context)?;
    let list_options = ListOptions::parse(context.query)?;
    let selection = Selection::parse(context)?;
    let part = list::read(context, &list_options, &selection).await?;
    let mut items = Vec::new();
    for object in part.items {
        let (namespace, name) = (metadata::namespace(&object), metadata::name(&object));
        match delete_one(context, namespace, name, &options).await {
            Ok(Deleted::Gone(_) | Deleted::Waiting(_)) => items.push(object),
            // Another request deleted it.
            Err(failure) if failure.status().code == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    context.check_form(printing)?;
    let list = ListMeta {
        resource_version: part.revision.to_string(),
        ..ListMeta::default()
    };
    let document = printing.list(context.target, items, list);
    Ok(json_response(StatusCode::OK, &document))
}

async fn delete_one(
    context: &Context<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Outcome<Deleted> {
    let not_found = || Failure::from(Status::not_found(&context.target.resource.name, name));
    let key = context.keys.object(namespace, name);
    let read = context.store().get(key.as_bytes(), GetOptions::default());
    let read = read.await.map_err(|error| context.store_failure(&error))?;
    let mut before = context.stored(read.kv.ok_or_else(not_found)?)?;
    for _ in 0..ATTEMPTS_MAX {
        options.check_object(context, name, &before)?;
        let (deleted, written) = attempt(context, &before, options).await?;
        match written {
            Written::Done(_) => return Ok(deleted),
            Written::Lost(current) => before = current.ok_or_else(not_found)?,
        }
    }
    Err(contended(context, name))
}

/// Deletes an object, or marks it as deleted if it has finalizers.
async fn attempt(
    context: &Context<'_>,
    before: &Stored,
    options: &DeleteOptions,
) -> Outcome<(Deleted, Written)> {
    let has_finalizers = metadata::finalizers(&before.object).next().is_some();
    if !has_finalizers {
        let written = if options.is_dry_run() {
            Written::Done(before.revision)
        } else {
            remove_finalized(context, before).await?
        };
        return Ok((Deleted::Gone(before.object.clone()), written));
    }
    let mut object = before.object.clone();
    if !metadata::is_deleting(&object) {
        let now = timestamp::format(now_unix_s()).unwrap_or_default();
        metadata::set(&mut object, "deletionTimestamp", now);
        metadata::set(&mut object, "deletionGracePeriodSeconds", 0);
        let generation = metadata::generation(&object).saturating_add(1);
        metadata::set(&mut object, "generation", generation);
    }
    let written = if options.is_dry_run() {
        Written::Done(before.revision)
    } else {
        put(context, &object, before).await?
    };
    if let Written::Done(revision) = written {
        metadata::set(&mut object, "resourceVersion", revision.to_string());
    }
    Ok((Deleted::Waiting(object), written))
}

/// Deletes an object without finalizers from the store.
pub(super) async fn remove_finalized(context: &Context<'_>, before: &Stored) -> Outcome<Written> {
    let options = kubernetes::DeleteOptions {
        get_on_failure: true,
    };
    let key = key_of(context, &before.object);
    let store = context.store();
    let deleted = store.optimistic_delete(key.as_bytes(), before.revision, options);
    let deleted = deleted
        .await
        .map_err(|error| context.store_failure(&error))?;
    if deleted.succeeded {
        return Ok(Written::Done(deleted.revision));
    }
    let current = deleted.kv.map(|kv| context.stored(kv)).transpose()?;
    Ok(Written::Lost(current))
}
