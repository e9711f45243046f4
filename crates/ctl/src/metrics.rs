//! The metrics page of a member, read over HTTP from its client URL.

use std::error::Error;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use portunus_client::parse_endpoint;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::globals::Globals;
use crate::outcome::with_causes;

/// Longest wait for the page.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A page larger than this is none of a member.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Returns the metrics of the member behind an endpoint, or why they cannot be read.
pub async fn fetch(endpoint: &str, globals: &Globals) -> Result<String, String> {
    match tokio::time::timeout(TIMEOUT, request(endpoint, globals)).await {
        Ok(page) => page.map_err(|error| with_causes(&*error)),
        Err(_) => Err(format!("{endpoint} did not answer within {TIMEOUT:?}")),
    }
}

async fn request(endpoint: &str, globals: &Globals) -> Result<String, Box<dyn Error>> {
    let parts = parse_endpoint(endpoint)?;
    let stream = TcpStream::connect(&*parts.address).await?;
    let tls = globals
        .http_tls(&parts)
        .map_err(|failure| failure.message.unwrap_or_default())?;
    let page = match tls {
        Some(tls) => {
            let stream = tls.connect(parts.host(), stream).await?;
            get(TokioIo::new(stream), &parts.address).await?
        }
        None => get(TokioIo::new(stream), &parts.address).await?,
    };
    Ok(String::from_utf8_lossy(&page).into_owned())
}

async fn get<S>(stream: TokioIo<S>, authority: &str) -> Result<Bytes, Box<dyn Error>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await?;
    // Ends when the sender is dropped.
    tokio::spawn(connection);
    let request = Request::get("/metrics").header(HOST, authority);
    let response = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    if response.status() != StatusCode::OK {
        return Err(format!("/metrics answered {}", response.status()).into());
    }
    let body = Limited::new(response.into_body(), PAGE_BYTES_MAX);
    let body = body.collect().await.map_err(io::Error::other)?;
    Ok(body.to_bytes())
}

/// Returns the value of a metric without labels.
pub fn value_of(page: &str, name: &str) -> Option<f64> {
    let mut values = page.lines().filter_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(' ')?;
        value.trim().parse().ok()
    });
    values.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_a_metric_is_read_from_its_own_line() {
        let page = "# HELP a text\na_b 1\na 2.5e+07\na 3\n";
        assert_eq!(value_of(page, "a"), Some(2.5e7));
        assert_eq!(value_of(page, "b"), None);
    }
}
