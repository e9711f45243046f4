//! Answers: objects, lists, tables, metadata and failures as HTTP responses.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use portunus_apis::WarningHeaders;
use portunus_objects::field::{FieldError, Path};
use portunus_objects::metadata;
use portunus_objects::partial::{partial_metadata, partial_metadata_list};
use portunus_objects::status::Status;
use portunus_objects::table::{Columns, IncludeObject, ListMeta, Table};
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::Target;
use crate::body::{Body, full_body};
use crate::failure::{Failure, Outcome};
use crate::negotiate::{Form, JSON};

/// Returns the time in seconds since 1970.
pub(crate) fn now_unix_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Creates a JSON response.
pub(crate) fn json_response(code: StatusCode, document: &impl Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    bytes_response(code, JSON, bytes)
}

/// Creates a response from bytes.
pub(crate) fn bytes_response(
    code: StatusCode,
    media_type: &'static str,
    bytes: impl Into<bytes::Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full_body(bytes));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Creates the response of a failed request.
pub(crate) fn failure_response(failure: &Failure) -> Response<Body> {
    let status = failure.status();
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, status);
    let retry_after = status.details.as_ref().map(|it| it.retry_after_seconds);
    if let Some(seconds) = retry_after.filter(|seconds| *seconds > 0) {
        let value = HeaderValue::from(seconds);
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

/// Adds warnings to a response.
pub(crate) fn add_warnings(response: &mut Response<Body>, warnings: &WarningHeaders) {
    for value in warnings.values() {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// How a client wants its objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printing {
    pub(crate) form: Form,
    include: IncludeObject,
}

impl Printing {
    /// Reads the parameter `includeObject`.
    pub(crate) fn new(form: Form, include: &str) -> Printing {
        let include = IncludeObject::parse(include).unwrap_or_default();
        Printing { form, include }
    }

    /// Refuses a value of `includeObject` that is not known; it counts for tables alone.
    pub(crate) fn check_include(self, include: &str) -> Outcome<()> {
        if self.form != Form::Table || IncludeObject::parse(include).is_some() {
            return Ok(());
        }
        let path = Path::new("includeObject");
        let detail = "must be 'Metadata', 'Object', 'None', or empty";
        let error = FieldError::invalid(&path, include, detail);
        let why = format!("Unable to convert to Table as requested: {error}");
        Err(Status::bad_request(&why).into())
    }

    /// Returns one object in the form of the client.
    pub(crate) fn object(self, columns: &Columns, object: Value) -> Value {
        match self.form {
            Form::Object => object,
            Form::Metadata | Form::MetadataList => partial_metadata(&object),
            Form::Table => {
                let list = ListMeta {
                    resource_version: metadata::resource_version(&object).to_owned(),
                    ..ListMeta::default()
                };
                as_value(&Table::new(
                    columns,
                    [&object],
                    list,
                    self.include,
                    now_unix_s(),
                ))
            }
        }
    }

    /// Returns a list in the form of the client.
    pub(crate) fn list(self, target: Target<'_>, items: Vec<Value>, list: ListMeta) -> Value {
        let columns = &target.version.columns;
        match self.form {
            Form::Object => json!({
                "kind": format!("{}List", target.resource.definition.kind),
                "apiVersion": target.resource.api_version(&target.version.name),
                "metadata": list,
                "items": items,
            }),
            Form::Metadata | Form::MetadataList => partial_metadata_list(&items, &list),
            Form::Table => as_value(&Table::new(
                columns,
                &items,
                list,
                self.include,
                now_unix_s(),
            )),
        }
    }
}

fn as_value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}
