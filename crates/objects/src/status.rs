//! The `Status` object: what a request that failed is answered with.
//!
//! One constructor per error of Kubernetes, with its code, reason and message. Clients decide by
//! the reason and people read the message, so both are those of Kubernetes.

use serde::{Deserialize, Serialize};

use crate::field::{FieldError, join_errors};
use crate::go_format::quote;
use crate::group::{GroupKind, GroupResource};

/// A cause of a failure, such as one wrong field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// A word for programs, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A text for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What a failure is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, or the kind of an invalid object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The unique id of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again; 0 if unset.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The metadata of a `Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusMetadata {
    /// The token with which an expired list can go on; empty if unset.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// A `Status` object of the version v1, serialised in the order of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    kind: String,
    api_version: String,
    /// The metadata.
    #[serde(default)]
    pub metadata: StatusMetadata,
    /// `Success` or `Failure`.
    pub status: String,
    /// A text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// A word for programs, such as `NotFound`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the failure is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// The HTTP status code; 0 if unset.
    #[serde(default, skip_serializing_if = "is_zero_code")]
    pub code: u16,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_code(code: &u16) -> bool {
    *code == 0
}

fn about_resource(resource: &GroupResource, name: &str) -> Option<Details> {
    Some(Details {
        name: name.to_owned(),
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        ..Details::default()
    })
}

impl Status {
    /// Creates a failure from its parts. Prefer the constructors below.
    #[must_use]
    pub fn failure(code: u16, reason: &str, message: &str, details: Option<Details>) -> Status {
        Status {
            kind: "Status".to_owned(),
            api_version: "v1".to_owned(),
            metadata: StatusMetadata::default(),
            status: "Failure".to_owned(),
            message: message.to_owned(),
            reason: reason.to_owned(),
            details,
            code,
        }
    }

    /// The answer to a deletion that is complete; its code is that of the response.
    #[must_use]
    pub fn success(details: Option<Details>) -> Status {
        Status {
            status: "Success".to_owned(),
            ..Status::failure(0, "", "", details)
        }
    }

    /// The answer of a deletion that removed the object.
    #[must_use]
    pub fn deleted(resource: &GroupResource, name: &str, uid: &str) -> Status {
        let mut status = Status::success(about_resource(resource, name));
        status.details.get_or_insert_default().uid = uid.to_owned();
        status
    }

    /// The object does not exist.
    #[must_use]
    pub fn not_found(resource: &GroupResource, name: &str) -> Status {
        let message = format!("{resource} {} not found", quote(name));
        Status::failure(404, "NotFound", &message, about_resource(resource, name))
    }

    /// The path or the API does not exist. `why` explains it; empty for the text of Kubernetes.
    #[must_use]
    pub fn unknown_path(why: &str) -> Status {
        let message = if why.is_empty() {
            "the server could not find the requested resource"
        } else {
            why
        };
        Status::failure(404, "NotFound", message, Some(Details::default()))
    }

    /// An object with this name exists.
    #[must_use]
    pub fn already_exists(resource: &GroupResource, name: &str) -> Status {
        let message = format!("{resource} {} already exists", quote(name));
        let details = about_resource(resource, name);
        Status::failure(409, "AlreadyExists", &message, details)
    }

    /// No free name was found for a `generateName`.
    #[must_use]
    pub fn generated_name_taken(
        resource: &GroupResource,
        name: &str,
        retry_after_seconds: u32,
    ) -> Status {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        let details = about_resource(resource, name);
        Status::failure(409, "AlreadyExists", &message, details).retry_after(retry_after_seconds)
    }

    /// The request has no valid credentials.
    #[must_use]
    pub fn unauthorized(why: &str) -> Status {
        let message = if why.is_empty() {
            "not authorized"
        } else {
            why
        };
        Status::failure(401, "Unauthorized", message, None)
    }

    /// The user may not do this.
    #[must_use]
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Status {
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Status::failure(403, "Forbidden", &message, about_resource(resource, name))
    }

    /// The object was changed by another request, or a precondition does not hold.
    #[must_use]
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Status {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {why}",
            quote(name)
        );
        Status::failure(409, "Conflict", &message, about_resource(resource, name))
    }

    /// An update carries an old resource version.
    #[must_use]
    pub fn stale_update(resource: &GroupResource, name: &str) -> Status {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(resource, name, why)
    }

    /// What was asked for is gone for ever.
    #[must_use]
    pub fn gone(message: &str) -> Status {
        Status::failure(410, "Gone", message, None)
    }

    /// The resource version is too old.
    #[must_use]
    pub fn expired(message: &str) -> Status {
        Status::failure(410, "Expired", message, None)
    }

    /// Fields of the object are wrong.
    #[must_use]
    pub fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Status {
        let message = if errors.is_empty() {
            format!("{kind} {} is invalid", quote(name))
        } else {
            format!("{kind} {} is invalid: {}", quote(name), join_errors(errors))
        };
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason().to_owned(),
                message: error.body(),
                field: error.field.to_string(),
            })
            .collect();
        let details = Details {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes,
            ..Details::default()
        };
        Status::failure(422, "Invalid", &message, Some(details))
    }

    /// A patch does not apply to the object.
    #[must_use]
    pub fn unprocessable_patch() -> Status {
        let message = "the server rejected our request due to an error in our request";
        Status::failure(422, "Invalid", message, Some(Details::default()))
    }

    /// The request is malformed.
    #[must_use]
    pub fn bad_request(why: &str) -> Status {
        Status::failure(400, "BadRequest", why, None)
    }

    /// The client sends too much; `retry_after_seconds` says when to come back.
    #[must_use]
    pub fn too_many_requests(message: &str, retry_after_seconds: u32) -> Status {
        let details = Some(Details::default());
        Status::failure(429, "TooManyRequests", message, details).retry_after(retry_after_seconds)
    }

    /// The server cannot answer now.
    #[must_use]
    pub fn service_unavailable(why: &str) -> Status {
        Status::failure(503, "ServiceUnavailable", why, None)
    }

    /// The resource does not have this verb.
    #[must_use]
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Status {
        let message = format!(
            "{action} is not supported on resources of kind {}",
            quote(&resource.to_string())
        );
        let details = about_resource(resource, "");
        Status::failure(405, "MethodNotAllowed", &message, details)
    }

    /// The path does not have this method.
    #[must_use]
    pub fn method_not_allowed() -> Status {
        let message = "the server does not allow this method on the requested resource";
        let details = Some(Details::default());
        Status::failure(405, "MethodNotAllowed", message, details)
    }

    /// The server gave up before the operation began; it can be repeated.
    #[must_use]
    pub fn server_timeout(
        resource: &GroupResource,
        operation: &str,
        retry_after_seconds: u32,
    ) -> Status {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        let details = about_resource(resource, operation);
        Status::failure(500, "ServerTimeout", &message, details).retry_after(retry_after_seconds)
    }

    /// The server failed.
    #[must_use]
    pub fn internal_error(error: &str) -> Status {
        let details = Details {
            causes: vec![Cause {
                message: error.to_owned(),
                ..Cause::default()
            }],
            ..Details::default()
        };
        let message = format!("Internal error occurred: {error}");
        Status::failure(500, "InternalError", &message, Some(details))
    }

    /// The operation did not end in time.
    #[must_use]
    pub fn timeout(message: &str, retry_after_seconds: u32) -> Status {
        let details = Some(Details::default());
        let message = format!("Timeout: {message}");
        Status::failure(504, "Timeout", &message, details).retry_after(retry_after_seconds)
    }

    /// The requested resource version does not exist yet.
    #[must_use]
    pub fn resource_version_too_large(
        requested: u64,
        current: u64,
        retry_after_seconds: u32,
    ) -> Status {
        let message = format!("Too large resource version: {requested}, current: {current}");
        let mut status = Status::timeout(&message, retry_after_seconds);
        status.details.get_or_insert_default().causes = vec![Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }];
        status
    }

    /// The body of the request is too large.
    #[must_use]
    pub fn request_entity_too_large(why: &str) -> Status {
        let message = format!("Request entity too large: {why}");
        Status::failure(413, "RequestEntityTooLarge", &message, None)
    }

    /// No media type that the client accepts can be produced.
    #[must_use]
    pub fn not_acceptable(accepted: &[&str]) -> Status {
        let message = format!(
            "only the following media types are accepted: {}",
            accepted.join(", ")
        );
        Status::failure(406, "NotAcceptable", &message, None)
    }

    /// The media type of the body is unknown.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Status {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Status::failure(415, "UnsupportedMediaType", &message, None)
    }

    /// Returns this status with the seconds after which the client may try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Status {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Returns whether the request succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == "Success"
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::field::Path;

    fn flunders() -> GroupResource {
        GroupResource::new("wardle.example.com", "flunders")
    }

    /// One row per constructor: code, reason, message, details.
    fn table() -> Vec<(Status, u16, &'static str, &'static str, serde_json::Value)> {
        let about = json!({"name": "a", "group": "wardle.example.com", "kind": "flunders"});
        let kind = GroupKind::new("wardle.example.com", "Flunder");
        let errors = [
            FieldError::required(&Path::new("spec"), ""),
            FieldError::invalid(&Path::new("spec").child("x"), 1, "no"),
        ];
        vec![
            (
                Status::not_found(&flunders(), "a"),
                404,
                "NotFound",
                r#"flunders.wardle.example.com "a" not found"#,
                about.clone(),
            ),
            (
                Status::unknown_path(""),
                404,
                "NotFound",
                "the server could not find the requested resource",
                json!({}),
            ),
            (
                Status::already_exists(&flunders(), "a"),
                409,
                "AlreadyExists",
                r#"flunders.wardle.example.com "a" already exists"#,
                about.clone(),
            ),
            (
                Status::generated_name_taken(&flunders(), "a", 1),
                409,
                "AlreadyExists",
                r#"flunders.wardle.example.com "a" already exists, the server was not able to generate a unique name for the object"#,
                json!({"name": "a", "group": "wardle.example.com", "kind": "flunders", "retryAfterSeconds": 1}),
            ),
            (
                Status::unauthorized(""),
                401,
                "Unauthorized",
                "not authorized",
                json!(null),
            ),
            (
                Status::unauthorized("Unauthorized"),
                401,
                "Unauthorized",
                "Unauthorized",
                json!(null),
            ),
            (
                Status::forbidden(&flunders(), "a", "no"),
                403,
                "Forbidden",
                r#"flunders.wardle.example.com "a" is forbidden: no"#,
                about.clone(),
            ),
            (
                Status::forbidden(&flunders(), "", "no"),
                403,
                "Forbidden",
                "flunders.wardle.example.com is forbidden: no",
                json!({"group": "wardle.example.com", "kind": "flunders"}),
            ),
            (
                Status::forbidden(&GroupResource::default(), "", "no"),
                403,
                "Forbidden",
                "forbidden: no",
                json!({}),
            ),
            (
                Status::conflict(&flunders(), "a", "why"),
                409,
                "Conflict",
                r#"Operation cannot be fulfilled on flunders.wardle.example.com "a": why"#,
                about.clone(),
            ),
            (
                Status::stale_update(&GroupResource::new("", "pods"), "a"),
                409,
                "Conflict",
                r#"Operation cannot be fulfilled on pods "a": the object has been modified; please apply your changes to the latest version and try again"#,
                json!({"name": "a", "kind": "pods"}),
            ),
            (Status::gone("m"), 410, "Gone", "m", json!(null)),
            (Status::expired("m"), 410, "Expired", "m", json!(null)),
            (
                Status::invalid(&kind, "a", &errors),
                422,
                "Invalid",
                r#"Flunder.wardle.example.com "a" is invalid: [spec: Required value, spec.x: Invalid value: 1: no]"#,
                json!({"name": "a", "group": "wardle.example.com", "kind": "Flunder", "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec"},
                {"reason": "FieldValueInvalid", "message": "Invalid value: 1: no", "field": "spec.x"}]}),
            ),
            (
                Status::invalid(&kind, "a", &[]),
                422,
                "Invalid",
                r#"Flunder.wardle.example.com "a" is invalid"#,
                json!({"name": "a", "group": "wardle.example.com", "kind": "Flunder"}),
            ),
            (
                Status::unprocessable_patch(),
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
                json!({}),
            ),
            (
                Status::bad_request("m"),
                400,
                "BadRequest",
                "m",
                json!(null),
            ),
            (
                Status::too_many_requests("m", 1),
                429,
                "TooManyRequests",
                "m",
                json!({"retryAfterSeconds": 1}),
            ),
            (
                Status::service_unavailable("m"),
                503,
                "ServiceUnavailable",
                "m",
                json!(null),
            ),
            (
                Status::method_not_supported(&flunders(), "patch"),
                405,
                "MethodNotAllowed",
                r#"patch is not supported on resources of kind "flunders.wardle.example.com""#,
                json!({"group": "wardle.example.com", "kind": "flunders"}),
            ),
            (
                Status::server_timeout(&flunders(), "list", 2),
                500,
                "ServerTimeout",
                "The list operation against flunders.wardle.example.com could not be completed at this time, please try again.",
                json!({"name": "list", "group": "wardle.example.com", "kind": "flunders", "retryAfterSeconds": 2}),
            ),
            (
                Status::internal_error("e"),
                500,
                "InternalError",
                "Internal error occurred: e",
                json!({"causes": [{"message": "e"}]}),
            ),
            (
                Status::timeout("m", 0),
                504,
                "Timeout",
                "Timeout: m",
                json!({}),
            ),
            (
                Status::resource_version_too_large(9, 5, 1),
                504,
                "Timeout",
                "Timeout: Too large resource version: 9, current: 5",
                json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}),
            ),
            (
                Status::request_entity_too_large("m"),
                413,
                "RequestEntityTooLarge",
                "Request entity too large: m",
                json!(null),
            ),
            (
                Status::not_acceptable(&["application/json", "application/yaml"]),
                406,
                "NotAcceptable",
                "only the following media types are accepted: application/json, application/yaml",
                json!(null),
            ),
            (
                Status::unsupported_media_type(&["application/json"]),
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: application/json",
                json!(null),
            ),
        ]
    }

    #[test]
    fn every_error_has_the_code_reason_message_and_details_of_kubernetes() {
        for (status, code, reason, message, details) in table() {
            let value = serde_json::to_value(&status).unwrap();
            assert_eq!(value["kind"], "Status");
            assert_eq!(value["apiVersion"], "v1");
            assert_eq!(value["metadata"], json!({}));
            assert_eq!(value["status"], "Failure");
            assert_eq!(value["code"], code, "{message}");
            assert_eq!(value["reason"], reason, "{message}");
            assert_eq!(value["message"], message);
            assert_eq!(value["details"], details, "{message}");
        }
    }

    #[test]
    fn status_has_the_field_order_of_kubernetes() {
        let status = Status::deleted(&flunders(), "a", "u");
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","group":"wardle.example.com","kind":"flunders","uid":"u"}}"#
        );
        assert_eq!(
            serde_json::to_string(&Status::gone("m")).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"Gone","code":410}"#
        );
    }

    #[test]
    fn status_survives_a_round_trip() {
        for (status, ..) in table() {
            let text = serde_json::to_string(&status).unwrap();
            assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
        }
    }
}
