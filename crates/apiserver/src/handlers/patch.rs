//! Changing a part of an object, by JSON Patch or merge patch.

use http::{Response, StatusCode};
use portunus_objects::metadata;
use portunus_objects::patch::{JsonPatch, MergePatch, PatchError};
use portunus_objects::schema::FieldValidation;
use portunus_objects::status::Status;
use serde_json::Value;

use super::context::Context;
use super::update::replace;
use super::write::{ATTEMPTS_MAX, Written, check_type, contended, place, read_failure};
use crate::body::Body;
use crate::failure::{Failure, Outcome};
use crate::negotiate::content_type;
use crate::store::Stored;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// A decoded patch.
enum Patch {
    Json(JsonPatch),
    Merge(MergePatch),
}

impl Patch {
    fn parse(context: &Context<'_>) -> Outcome<Patch> {
        let failure = |error: PatchError| Failure::from(error.status());
        match content_type(context.headers) {
            JSON_PATCH => JsonPatch::parse(&context.body)
                .map(Patch::Json)
                .map_err(failure),
            MERGE_PATCH => MergePatch::parse(&context.body)
                .map(Patch::Merge)
                .map_err(failure),
            _ => Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH]).into()),
        }
    }

    /// Returns the texts about repeated and unknown fields of the patch itself.
    fn problems(&self) -> Vec<String> {
        match self {
            Patch::Json(patch) => patch.strict_errors().to_vec(),
            Patch::Merge(patch) => patch.duplicates().to_vec(),
        }
    }

    fn apply(&self, document: Value) -> Outcome<Value> {
        match self {
            Patch::Json(patch) => patch.apply(document).map_err(|error| error.status().into()),
            Patch::Merge(patch) => Ok(patch.apply(document)),
        }
    }
}

pub(super) async fn patch(context: &Context<'_>) -> Outcome<Response<Body>> {
    context.printing()?;
    let (validation, is_dry_run) = context.write_options("PatchOptions")?;
    // A missing object is reported before a malformed JSON Patch, and after other problems.
    let parsed = Patch::parse(context);
    if content_type(context.headers) != JSON_PATCH {
        parsed.as_ref().map_err(Clone::clone)?;
    }
    let mut before = context.read().await?;
    let patch = parsed?;
    for _ in 0..ATTEMPTS_MAX {
        let (object, warnings) = patched(context, &patch, &before, validation)?;
        let (object, written) = replace(context, object, &before, is_dry_run).await?;
        match written {
            Written::Done(_) => {
                for warning in warnings {
                    context.warn(&warning);
                }
                return context.answer_object(StatusCode::OK, object);
            }
            Written::Lost(current) => before = current.ok_or_else(|| context.not_found())?,
        }
    }
    Err(contended(context, &context.info.name))
}

/// Applies the patch to the stored object in the version of the request.
fn patched(
    context: &Context<'_>,
    patch: &Patch,
    before: &Stored,
    validation: FieldValidation,
) -> Outcome<(Value, Vec<String>)> {
    let current = context.to_request_version(before.object.clone())?;
    let object = patch.apply(current)?;
    if !object.is_object() {
        return Err(Status::unprocessable_patch().into());
    }
    let schema = &context.target.version.schema;
    let read = schema.read_value(object, patch.problems(), validation);
    let read = read.map_err(|error| read_failure(context, &error))?;
    let mut object = read.object;
    check_type(context, &mut object)?;
    place(context, &mut object)?;
    if metadata::name(&object) != context.info.name {
        let why = format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            metadata::name(&object),
            context.info.name
        );
        return Err(Status::bad_request(&why).into());
    }
    Ok((object, read.warnings))
}
