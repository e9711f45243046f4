//! HTTP requests to peers, for the transport's tasks and for the server's requests to other
//! endpoints: `/members`, `/version`, `/leases`.
//!
//! Idle connections are kept, but closed before a Go member closes them. HTTP/1.1 only, as in
//! etcd's peer protocol. No retries: only the caller knows which requests are idempotent.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;

use crate::body::{self, CollectError, RequestBody};
use crate::config::Config;
use crate::connector::PeerConnector;

/// A Go member closes a connection after five idle seconds.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// A request without a complete answer.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum RequestError {
    /// The address or a header is invalid.
    #[error("{url:?} is not a valid address: check the peer's address")]
    Malformed { url: String, source: http::Error },
    /// Connecting failed, or the connection broke before the answer.
    #[error("cannot reach the peer")]
    Unreachable(#[source] hyper_util::client::legacy::Error),
    /// The connection broke within the answer.
    #[error("the response was truncated")]
    CutOff(#[source] axum::Error),
    /// The answer exceeds the caller's limit.
    #[error("the response is longer than {answer_bytes_max} bytes")]
    AnswerTooLong { answer_bytes_max: usize },
    /// The caller's timeout expired.
    #[error("no response within {} ms", timeout.as_millis())]
    TimedOut { timeout: Duration },
}

/// A client for peers. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct PeerClient {
    client: Client<PeerConnector, RequestBody>,
}

impl PeerClient {
    /// A client that reuses connections.
    pub fn new(config: &Config) -> PeerClient {
        PeerClient::with_idle_connections(config, config.pipeline_connections.max(1))
    }

    /// A client for streams, whose connections are not reused.
    pub(crate) fn for_streams(config: &Config) -> PeerClient {
        PeerClient::with_idle_connections(config, 0)
    }

    fn with_idle_connections(config: &Config, idle_max: usize) -> PeerClient {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(idle_max)
            .build(PeerConnector::new(config));
        PeerClient { client }
    }

    /// Sends a request; any status counts as an answer. `timeout` covers connecting and reading.
    pub async fn request(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
        answer_bytes_max: usize,
        timeout: Duration,
    ) -> Result<(StatusCode, HeaderMap, Bytes), RequestError> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(body::full(body))
            .map_err(|source| RequestError::Malformed {
                url: url.chars().take(200).collect(),
                source,
            })?;
        let answer = self.send_whole(request, answer_bytes_max);
        tokio::time::timeout(timeout, answer)
            .await
            .map_err(|_| RequestError::TimedOut { timeout })?
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send_whole(
        &self,
        request: Request<RequestBody>,
        answer_bytes_max: usize,
    ) -> Result<(StatusCode, HeaderMap, Bytes), RequestError> {
        let (head, body) = self.send(request).await?.into_parts();
        let body =
            body::collect(body, answer_bytes_max, None)
                .await
                .map_err(|error| match error {
                    CollectError::TooLong => RequestError::AnswerTooLong { answer_bytes_max },
                    CollectError::Stalled => RequestError::TimedOut {
                        timeout: Duration::ZERO,
                    },
                    CollectError::Broken(source) => RequestError::CutOff(source),
                })?;
        Ok((head.status, head.headers, body))
    }

    /// Sends a request and reads the head of the answer.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, RequestError> {
        self.client
            .request(request)
            .await
            .map_err(RequestError::Unreachable)
    }
}
