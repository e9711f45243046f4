//! Reading one object.

use http::{Response, StatusCode};
use portunus_client::kubernetes::GetOptions;
use portunus_objects::status::Status;

use super::context::Context;
use super::list_options::{check_not_too_new, parse_version};
use crate::body::Body;
use crate::failure::Outcome;
use crate::respond::json_response;

pub(super) async fn get(context: &Context<'_>) -> Outcome<Response<Body>> {
    let printing = context.printing()?;
    let at_least = parse_version(context.query.get("resourceVersion"))
        .map_err(|text| Status::bad_request(&text))?;
    let key = context.key();
    let read = context.store().get(key.as_bytes(), GetOptions::default());
    let read = read.await.map_err(|error| context.store_failure(&error))?;
    check_not_too_new(at_least, read.revision)?;
    let kv = read.kv.ok_or_else(|| context.not_found())?;
    context.check_form(printing)?;
    let object = context.decode(&kv.value, kv.mod_revision)?;
    let document = printing.object(&context.target.version.columns, object);
    Ok(json_response(StatusCode::OK, &document))
}
