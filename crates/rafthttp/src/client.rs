//! Requests to peers. The transport's own tasks use it, and the server for the endpoints
//! that are not raft's: `/members`, `/version`, `/leases` and their like.
//!
//! Connections are kept for a while, but shorter than a Go member keeps them. HTTP/1.1
//! only: that is all a peer speaks. No retries here: the caller knows what may be repeated.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;

use crate::body::{self, CollectError, RequestBody};
use crate::config::Config;

/// A Go member closes a connection after five idle seconds.
const IDLE_MAX: Duration = Duration::from_secs(4);
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// A request without a usable answer.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum RequestError {
    /// The address or a header cannot be written.
    #[error("{url:?} cannot be asked: check the peer's address")]
    Malformed { url: String, source: http::Error },
    /// No connection, or it broke before the answer.
    #[error("cannot reach the peer")]
    Unreachable(#[source] hyper_util::client::legacy::Error),
    /// The connection broke inside the answer.
    #[error("the answer was cut off")]
    CutOff(#[source] axum::Error),
    /// More came than the caller wants.
    #[error("the answer is longer than {answer_bytes_max} bytes")]
    AnswerTooLong { answer_bytes_max: usize },
    /// It took too long.
    #[error("no answer within {} ms", timeout.as_millis())]
    TimedOut { timeout: Duration },
}

/// A client for peers. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct PeerClient {
    client: Client<HttpConnector, RequestBody>,
}

impl PeerClient {
    /// A client that keeps connections for the next request.
    pub fn new(config: &Config) -> PeerClient {
        PeerClient::with_idle_connections(config, config.pipeline_connections.max(1))
    }

    /// A client for streams: their connections are of no use afterwards.
    pub(crate) fn for_streams(config: &Config) -> PeerClient {
        PeerClient::with_idle_connections(config, 0)
    }

    fn with_idle_connections(config: &Config, idle_max: usize) -> PeerClient {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        connector.set_connect_timeout(Some(config.dial_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(idle_max)
            .build(connector);
        PeerClient { client }
    }

    /// Asks a peer. Any status is an answer; `timeout` is for all of it.
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

    /// Sends a request and waits for the head of the answer.
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
