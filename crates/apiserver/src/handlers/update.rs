//! Replacing an object, or its status.

use http::{Response, StatusCode};
use portunus_objects::GroupKind;
use portunus_objects::field::{FieldError, Path};
use portunus_objects::metadata;
use portunus_objects::status::Status;
use serde_json::Value;

use super::context::Context;
use super::delete::remove_finalized;
use super::write::{ATTEMPTS_MAX, Written, contended, place, prepare_update, put, read_body};
use crate::body::Body;
use crate::failure::{Failure, Outcome};
use crate::store::Stored;

pub(super) async fn update(context: &Context<'_>) -> Outcome<Response<Body>> {
    context.printing()?;
    let (validation, is_dry_run) = context.write_options("UpdateOptions")?;
    let mut object = read_body(context, validation)?;
    check_name(context, &object)?;
    place(context, &mut object)?;
    let mut before = context.read().await?;
    for _ in 0..ATTEMPTS_MAX {
        check_uid(context, &object, &before)?;
        let (object, written) = replace(context, object.clone(), &before, is_dry_run).await?;
        match written {
            Written::Done(_) => return context.answer_object(StatusCode::OK, object),
            Written::Lost(current) => before = current.ok_or_else(|| context.not_found())?,
        }
    }
    Err(contended(context, &context.info.name))
}

/// Writes the object of an update or patch over its predecessor. Returns it in the hub version
/// with its resource version.
pub(super) async fn replace(
    context: &Context<'_>,
    mut object: Value,
    before: &Stored,
    is_dry_run: bool,
) -> Outcome<(Value, Written)> {
    check_version(context, &object, before)?;
    metadata::set(&mut object, "resourceVersion", before.revision.to_string());
    let prepared = prepare_update(context, object, &before.object)?;
    let mut object = prepared.object.clone();
    let is_finalized =
        metadata::is_deleting(&object) && metadata::finalizers(&object).next().is_none();
    let written = if is_dry_run {
        Written::Done(before.revision)
    } else if is_finalized {
        remove_finalized(context, before).await?
    } else {
        put(context, &object, before).await?
    };
    if let Written::Done(revision) = written {
        prepared.warn(context);
        // The last state of an object that is gone keeps its version.
        let revision = if is_finalized {
            before.revision
        } else {
            revision
        };
        metadata::set(&mut object, "resourceVersion", revision.to_string());
    }
    Ok((object, written))
}

/// Refuses the update of an object that was deleted and created again.
fn check_uid(context: &Context<'_>, object: &Value, before: &Stored) -> Outcome<()> {
    let uid = metadata::uid(object);
    let uid_before = metadata::uid(&before.object);
    if !uid.is_empty() && uid != uid_before {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {uid_before}"
        );
        let resource = &context.target.resource.name;
        return Err(Status::conflict(resource, &context.info.name, &why).into());
    }
    Ok(())
}

/// Refuses an object that was read before the stored one.
fn check_version(context: &Context<'_>, object: &Value, before: &Stored) -> Outcome<()> {
    let name = &context.info.name;
    let resource = &context.target.resource.name;
    let version = metadata::resource_version(object);
    let is_unconditional = matches!(version, "" | "0");
    if is_unconditional
        && !context
            .target
            .resource
            .definition
            .allows_unconditional_update
    {
        let path = Path::new("metadata").child("resourceVersion");
        let error = FieldError::invalid(&path, 0, "must be specified for an update");
        // Kubernetes names the resource here, not the kind.
        let kind = GroupKind::new(&resource.group, &resource.resource);
        return Err(Status::invalid(&kind, name, &[error]).into());
    }
    let is_current = version == before.revision.to_string();
    if !is_unconditional && !is_current {
        return Err(Status::stale_update(resource, name).into());
    }
    Ok(())
}

fn check_name(context: &Context<'_>, object: &Value) -> Outcome<()> {
    let expected = &context.info.name;
    let why = match metadata::name(object) {
        "" => format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        ),
        name if name != expected => format!(
            "the name of the object ({name}) does not match the name on the URL ({expected})"
        ),
        _ => return Ok(()),
    };
    Err(Failure::from(Status::bad_request(&why)))
}
