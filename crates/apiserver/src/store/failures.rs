//! Errors of the store as answers to clients.

use portunus_client::kubernetes::Error;
use portunus_objects::status::Status;

use super::continue_token::{ContinueToken, INCONSISTENT};
use crate::api::ApiResource;
use crate::failure::Failure;

const RETRY_AFTER_S: u32 = 1;
const EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a \
     consistent list result. You can start a new list without the continue parameter, or use the \
     continue token in this response to retrieve the remainder of the results. Continuing with \
     the provided token results in an inconsistent list - objects that were created, modified, or \
     deleted between the time the first chunk was returned and now may show up in the list.";

/// Returns the answer to a request that failed in the store. Addresses and internals of the store
/// are logged, not sent.
pub(crate) fn store_failure(resource: &ApiResource, operation: &str, error: &Error) -> Failure {
    let status = match error {
        Error::Compacted { .. } => Status::expired(EXPIRED),
        Error::NoSpace => Status::failure(507, "StorageFull", &error.to_string(), None),
        error if error.outcome_is_unknown() => {
            Status::server_timeout(&resource.name, operation, RETRY_AFTER_S)
        }
        Error::NoLeader | Error::Client(_) => {
            Status::service_unavailable("the store is not available: try again")
        }
        _ => Status::internal_error(&error.to_string()),
    };
    tracing::warn!(resource = %resource.name, operation, error = %error, "request to the store failed");
    status.into()
}

/// Returns the answer to a list that cannot go on at its revision, with a token that goes on with
/// the newest state.
pub(crate) fn expired_continue(start: &str) -> (Failure, String) {
    let token = ContinueToken {
        revision: INCONSISTENT,
        start: start.to_owned(),
    };
    (Status::expired(EXPIRED_CONTINUE).into(), token.encode())
}
