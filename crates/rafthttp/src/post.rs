//! POST requests to a peer and the interpretation of its answer, for the pipeline and for
//! snapshots.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode};

use crate::body::RequestBody;
use crate::client::RequestError;
use crate::peer::Peer;
use crate::status::Failure;

/// The longest answer that is read; a refusal is one line.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why a post did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PostError {
    /// The peer answered that this member was removed.
    Removed,
    /// Any other failure.
    Failed(Failure),
}

impl PostError {
    /// Returns the failure for the log.
    pub fn failure(&self) -> Failure {
        match self {
            PostError::Removed => Failure::Refused("this member was removed".into()),
            PostError::Failed(failure) => failure.clone(),
        }
    }
}

/// Sends a POST request; on failure the next request uses the peer's next address.
pub(crate) async fn post(
    peer: &Peer,
    path: &'static str,
    content_type: &'static str,
    body: RequestBody,
) -> Result<(), PostError> {
    let Some(url) = peer.urls.pick() else {
        let failure = Failure::Broken("the peer has no usable address".into());
        return Err(PostError::Failed(failure));
    };
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.join(&PathAndQuery::from_static(path));
    *request.headers_mut() = peer.shared.identity.request_headers();
    request
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let answer = peer
        .shared
        .post_client
        .send_whole(request, ANSWER_BYTES_MAX);
    let result = match answer.await {
        Ok((status, _, text)) => interpret(status, &text),
        Err(RequestError::AnswerTooLong { .. }) => {
            let failure = Failure::Refused("the answer is too long".into());
            Err(PostError::Failed(failure))
        }
        Err(error) => Err(PostError::Failed(Failure::broken(&error))),
    };
    if result.is_err() {
        peer.urls.failed(&url);
    }
    result
}

/// Interprets a peer's answer to a POST request.
fn interpret(status: StatusCode, text: &Bytes) -> Result<(), PostError> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end();
    match status {
        StatusCode::NO_CONTENT => Ok(()),
        // A Go member also answers 403 to messages for another member, for instance after
        // two members swapped addresses. This member was not removed then.
        StatusCode::FORBIDDEN if !text.contains("mismatch member") => Err(PostError::Removed),
        status => {
            let reason = format!("{text} ({status})");
            Err(PostError::Failed(Failure::Refused(reason)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreted(status: u16, text: &'static str) -> Result<(), PostError> {
        interpret(
            StatusCode::from_u16(status).unwrap(),
            &Bytes::from_static(text.as_bytes()),
        )
    }

    #[test]
    fn only_status_403_reports_removal() {
        let removed = r#"{"message":"cannot process message from removed member"}"#;
        assert_eq!(interpreted(403, removed), Err(PostError::Removed));
        assert_eq!(interpreted(403, ""), Err(PostError::Removed));
        let elsewhere = r#"{"message":"cannot process message to mismatch member"}"#;
        assert!(matches!(
            interpreted(403, elsewhere),
            Err(PostError::Failed(_))
        ));
        for status in [200, 404, 410, 412, 500, 503] {
            assert!(
                matches!(interpreted(status, "x"), Err(PostError::Failed(_))),
                "{status}"
            );
        }
        assert_eq!(interpreted(204, ""), Ok(()));
    }
}
