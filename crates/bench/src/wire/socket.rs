//! The socket of a connection, with or without TLS.

use std::io;

use bytes::BytesMut;
use portunus_tls::ClientStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::endpoint::Endpoint;

/// A connected socket. An enum instead of a trait object: the plain one is the common case, and
/// its calls cost nothing more than those of the stream.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<ClientStream<TcpStream>>),
}

impl Socket {
    /// Connects, and performs the handshake if the endpoint has TLS.
    pub async fn open(endpoint: &Endpoint) -> io::Result<Socket> {
        let stream = TcpStream::connect(&*endpoint.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &endpoint.tls else {
            return Ok(Socket::Plain(stream));
        };
        let host = endpoint.address.rsplit_once(':');
        let host = host.map_or(&*endpoint.address, |(host, _)| host);
        let stream = tls.connect(host, stream).await?;
        Ok(Socket::Tls(Box::new(stream)))
    }

    /// Writes all bytes to the network.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Socket::Plain(stream) => stream.write_all(bytes).await,
            Socket::Tls(stream) => {
                stream.write_all(bytes).await?;
                // Encrypted records may still be in the buffer of the session.
                stream.flush().await
            }
        }
    }

    /// Reads what is there, at least one byte; returns 0 at the end. Cancel safe.
    pub async fn read_buf(&mut self, bytes: &mut BytesMut) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.read_buf(bytes).await,
            Socket::Tls(stream) => stream.read_buf(bytes).await,
        }
    }
}
