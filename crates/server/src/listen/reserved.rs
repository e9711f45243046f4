//! An address that is bound, but not listened at yet.
//!
//! A starting member cannot serve peers before it has read its log. If it listened already,
//! peers would connect and wait for their whole timeout, and founders would wait for each other
//! in a circle. So connections are refused until then.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::{ListenError, for_each_url};
use crate::config::ListenUrl;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A bound address that refuses connections until [`Reserved::listen`].
pub struct Reserved {
    socket: TcpSocket,
    is_tls: bool,
}

/// Binds every address of a flag. Called before anything else, so that a taken port is found at
/// once.
pub fn reserve(urls: &[ListenUrl], flag: &'static str) -> Result<Vec<Reserved>, ListenError> {
    let sockets = for_each_url(urls, flag, |addresses| {
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match bind(*address) {
                Ok(socket) => return Ok(socket),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    })?;
    let sockets = sockets.into_iter().zip(urls);
    let reserved = sockets.map(|(socket, url)| Reserved {
        socket,
        is_tls: url.is_tls,
    });
    Ok(reserved.collect())
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of an earlier process may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Reserved {
    /// Returns whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Starts to listen. Needs a runtime.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.socket.listen(BACKLOG)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn url(authority: String) -> ListenUrl {
        ListenUrl {
            url: format!("http://{authority}"),
            authority,
            is_tls: false,
        }
    }

    #[tokio::test]
    async fn reserved_address_refuses_connections_until_it_is_listened_at() {
        let urls = [url("127.0.0.1:0".to_owned())];
        let reserved = reserve(&urls, "listen-peer-urls").unwrap().remove(0);
        let address = reserved.socket.local_addr().unwrap();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let _listener = reserved.listen().unwrap();
        TcpStream::connect(address).unwrap();

        let taken = reserve(&[url(address.to_string())], "listen-peer-urls");
        assert!(matches!(taken.err(), Some(ListenError::Taken { .. })));
    }
}
