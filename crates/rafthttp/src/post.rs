//! Posting something to a peer, and what its answer means. The pipeline and the snapshots
//! use it.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode};

use crate::body::RequestBody;
use crate::client::RequestError;
use crate::peer::Peer;
use crate::status::Failure;

/// Of an answer, this much is read; a refusal is one line.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why a post did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PostError {
    /// The peer says that this member was removed.
    Removed,
    /// Anything else.
    Failed(Failure),
}

impl PostError {
    /// What the log says about it.
    pub fn failure(&self) -> Failure {
        match self {
            PostError::Removed => Failure::Refused("this member was removed".into()),
            PostError::Failed(failure) => failure.clone(),
        }
    }
}

/// Posts, and turns to the peer's next address if that fails.
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
        Ok((status, _, text)) => judge(status, &text),
        // Whatever came after the status does not matter.
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

/// What a peer's answer to a post means.
fn judge(status: StatusCode, text: &Bytes) -> Result<(), PostError> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end();
    match status {
        StatusCode::NO_CONTENT => Ok(()),
        // A Go member answers 403 also to what was meant for another member, for instance
        // after addresses changed hands. That is no reason to stop for good.
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

    fn judged(status: u16, text: &'static str) -> Result<(), PostError> {
        judge(
            StatusCode::from_u16(status).unwrap(),
            &Bytes::from_static(text.as_bytes()),
        )
    }

    #[test]
    fn only_a_forbidden_sender_is_removed() {
        let removed = r#"{"message":"cannot process message from removed member"}"#;
        assert_eq!(judged(403, removed), Err(PostError::Removed));
        assert_eq!(judged(403, ""), Err(PostError::Removed));
        let elsewhere = r#"{"message":"cannot process message to mismatch member"}"#;
        assert!(matches!(judged(403, elsewhere), Err(PostError::Failed(_))));
        for status in [200, 404, 410, 412, 500, 503] {
            assert!(
                matches!(judged(status, "x"), Err(PostError::Failed(_))),
                "{status}"
            );
        }
        assert_eq!(judged(204, ""), Ok(()));
    }
}
