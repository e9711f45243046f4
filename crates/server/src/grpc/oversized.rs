//! The error for a message that exceeds a size limit of the transport.
//!
//! Tonic refuses such a message before it is read, with its own code and text. Clients and
//! dashboards match those of Go's gRPC library, which etcd uses. No handler sees a unary request
//! that is refused so, and tonic has no hook for it: so the refusal is translated in the response,
//! for every service in one place. It changes a status that no handler returned, never an answer.
//! In streams handlers translate it themselves ([`in_words_of_go`]).

use axum::body::Body;
use axum::http::{HeaderValue, Response};
use tonic::{Code, Status};

const STATUS_HEADER: &str = "grpc-status";

/// Tonic's text, in front of the two numbers.
const FOUND: &str = "Error, decoded message length too large: found ";
const LIMIT: &str = " bytes, the limit is: ";
const END: &str = " bytes";

/// Translates a response that consists of this refusal only.
pub fn translate_response(response: &mut Response<Body>) {
    // Only a response without a message has its status here; all others have trailers.
    let is_suspect = response
        .headers()
        .get(STATUS_HEADER)
        .is_some_and(|code| code == code_of(Code::OutOfRange));
    if is_suspect
        && let Some(status) = Status::from_header_map(response.headers())
        && let Some(translated) = translate(&status)
    {
        // Text of digits and ASCII letters is always a header.
        let _ = translated.add_header(response.headers_mut());
    }
}

/// The refusal of a response above the size limit, with the text of Go's library.
pub(super) fn response(bytes: usize, bytes_max: usize) -> Status {
    let text = format!("grpc: trying to send message larger than max ({bytes} vs. {bytes_max})");
    Status::resource_exhausted(text)
}

/// Translates this refusal of a message in a stream; other errors pass unchanged.
pub(super) fn in_words_of_go(status: Status) -> Status {
    translate(&status).unwrap_or(status)
}

/// Returns the refusal with the code and text of Go's library, if `status` is this refusal.
fn translate(status: &Status) -> Option<Status> {
    if status.code() != Code::OutOfRange {
        return None;
    }
    let numbers = status.message().strip_prefix(FOUND)?.strip_suffix(END)?;
    let (found, limit) = numbers.split_once(LIMIT)?;
    let text = format!("grpc: received message larger than max ({found} vs. {limit})");
    Some(Status::resource_exhausted(text))
}

fn code_of(code: Code) -> HeaderValue {
    HeaderValue::from(code as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_refusal_of_large_messages_is_translated() {
        let text = "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes";
        let translated = translate(&Status::out_of_range(text)).unwrap();
        assert_eq!(translated.code(), Code::ResourceExhausted);
        assert_eq!(
            translated.message(),
            "grpc: received message larger than max (5 vs. 4)"
        );
        assert!(translate(&Status::internal(text)).is_none());
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(translate(&Status::out_of_range(compacted)).is_none());
    }
}
