//! A client of an API server: HTTP/1.1 over TLS.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use portunus_tls::ClientTls;
use thiserror::Error;
use tokio::net::TcpStream;

/// A request that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No connection.
    #[error("cannot connect to the API server")]
    Connect(#[from] io::Error),
    /// The connection broke.
    #[error("the request could not be sent or its response not be read")]
    Http(#[from] hyper::Error),
    /// The request could not be built.
    #[error("the request is malformed")]
    Malformed(#[from] hyper::http::Error),
    /// The server refused.
    #[error("the server answered with {code}: {body}")]
    Refused {
        /// The code.
        code: u16,
        /// The beginning of the body.
        body: String,
    },
}

/// The most letters of a refusal that are shown.
const SHOWN_MAX: usize = 200;

/// One connection.
pub struct Connection {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the server does not accept it.
    pub async fn open(address: SocketAddr, tls: &ClientTls) -> Result<Connection, RequestError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = tls.connect("127.0.0.1", stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { address, sender })
    }

    async fn begin(
        &mut self,
        method: &str,
        target: &str,
        body: String,
    ) -> Result<Incoming, RequestError> {
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let code = response.status();
        let body = response.into_body();
        if code.is_success() {
            return Ok(body);
        }
        let bytes = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        Err(RequestError::Refused {
            code: code.as_u16(),
            body: text.chars().take(SHOWN_MAX).collect(),
        })
    }

    /// Sends a request and returns the length of the response.
    ///
    /// # Errors
    /// If the server refuses it or the connection breaks.
    pub async fn send(
        &mut self,
        method: &str,
        target: &str,
        body: String,
    ) -> Result<usize, RequestError> {
        let mut body = self.begin(method, target, body).await?;
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(length)
    }

    /// Opens a watch, reads this many events, and returns the bytes of all of them.
    ///
    /// # Errors
    /// If the server refuses it or the watch ends before.
    pub async fn watch(
        mut self,
        target: &str,
        opened: impl FnOnce(),
        events: usize,
    ) -> Result<usize, RequestError> {
        let mut body = self.begin("GET", target, String::new()).await?;
        opened();
        let (mut seen, mut length) = (0, 0);
        while seen < events {
            let Some(frame) = body.frame().await else {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            };
            let frame = frame?;
            let bytes = frame.data_ref().map_or(&[][..], |bytes| &bytes[..]);
            seen += bytes.iter().filter(|byte| **byte == b'\n').count();
            length += bytes.len();
        }
        Ok(length)
    }
}
