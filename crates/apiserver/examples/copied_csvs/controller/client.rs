//! Requests to the API server over one HTTP/2 connection, which is opened again when it breaks.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::kubeconfig::{self, Endpoint, KubeconfigError};

/// The longest time for a connection, and for the answer to a request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a connection without traffic is checked.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The largest answer, and the longest line of a watch.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The server cannot be reached.
    #[error("the server cannot be reached: {0}")]
    Connect(#[from] io::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Connection(#[from] hyper::Error),
    /// The server did not answer in time.
    #[error("no answer within {} s", REQUEST_TIME_MAX.as_secs())]
    Timeout,
    /// The server refused the request.
    #[error("the server answered {code} {reason}: {message}")]
    Status {
        /// The HTTP status.
        code: u16,
        /// The reason, such as `Conflict`.
        reason: String,
        /// The text for people.
        message: String,
    },
    /// The answer cannot be read.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
}

impl ClientError {
    /// Returns whether the server refused the request with this HTTP status.
    pub fn is_status(&self, expected: u16) -> bool {
        matches!(self, ClientError::Status { code, .. } if *code == expected)
    }

    /// Returns whether the same request may succeed soon.
    pub fn is_transient(&self) -> bool {
        match self {
            ClientError::Status { code, .. } => *code == 429 || *code >= 500,
            ClientError::Answer(_) => false,
            _ => true,
        }
    }
}

type Connection = SendRequest<Full<Bytes>>;

/// A client of the API server of a kubeconfig.
#[derive(Debug)]
pub struct Client {
    kubeconfig: PathBuf,
    /// Shared by all requests; replaced by the first that finds it closed.
    connection: Mutex<Option<(Connection, String)>>,
}

impl Client {
    /// Creates a client. The kubeconfig is read when a connection is opened.
    pub fn new(kubeconfig: &Path) -> Client {
        Client {
            kubeconfig: kubeconfig.to_owned(),
            connection: Mutex::new(None),
        }
    }

    /// Sends a request and returns the object of its answer. A patch is a merge patch.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let answer = async {
            let response = self.open(method, path, body).await?;
            read(response).await
        };
        timeout(REQUEST_TIME_MAX, answer)
            .await
            .map_err(|_| ClientError::Timeout)?
    }

    /// Opens a watch.
    pub async fn watch(&self, path: &str) -> Result<Lines, ClientError> {
        let opened = timeout(REQUEST_TIME_MAX, self.open(Method::GET, path, None)).await;
        let response = opened.map_err(|_| ClientError::Timeout)??;
        Ok(Lines {
            body: response.into_body(),
            rest: Vec::new(),
        })
    }

    /// Sends a request. An answer other than success is an error.
    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, ClientError> {
        let (mut connection, authority) = self.connection().await?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{authority}{path}"))
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| ClientError::Answer(error.to_string()))?;
        let response = connection.send_request(request).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let status = read(response).await.unwrap_or_default();
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        Err(ClientError::Status {
            code: code.as_u16(),
            reason: text("reason"),
            message: text("message"),
        })
    }

    /// Returns the open connection, or a new one, with the name of its server.
    async fn connection(&self) -> Result<(Connection, String), ClientError> {
        let mut open = self.connection.lock().await;
        if let Some((connection, authority)) = &mut *open
            && !connection.is_closed()
        {
            return Ok((connection.clone(), authority.clone()));
        }
        let connecting = connect(&self.kubeconfig);
        let connected = timeout(REQUEST_TIME_MAX, connecting).await;
        let connected = connected.map_err(|_| ClientError::Timeout)??;
        *open = Some(connected.clone());
        Ok(connected)
    }
}

async fn connect(kubeconfig: &Path) -> Result<(Connection, String), ClientError> {
    let Endpoint { authority, tls } = kubeconfig::read(kubeconfig)?;
    let host = authority
        .rsplit_once(':')
        .map_or(&*authority, |(host, _)| host);
    let stream = TcpStream::connect(&authority).await?;
    let stream = tls.connect(host, stream).await?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await?;
    // Its end shows in the requests.
    tokio::spawn(connection);
    Ok((sender, authority))
}

async fn read(response: Response<Incoming>) -> Result<Value, ClientError> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await;
    let body = body.map_err(|error| ClientError::Answer(error.to_string()))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| ClientError::Answer(error.to_string()))
}

/// The lines of a watch.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    /// Waits for the next line; none at the end of the watch.
    pub async fn next(&mut self) -> Result<Option<Value>, ClientError> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event = serde_json::from_slice(&line);
                return event
                    .map(Some)
                    .map_err(|error| ClientError::Answer(error.to_string()));
            }
            if self.rest.len() > ANSWER_BYTES_MAX {
                let why = format!("a line is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(ClientError::Answer(why));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.rest.extend(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }
}
