//! An address that is this process's own but not listened at yet.
//!
//! A member that starts cannot answer its peers before it knows its log. If it listened all
//! the same, peers would connect and wait for their whole timeout; founders, which ask each
//! other, would wait for each other in a circle. So a connection is refused at once until then.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::{ListenError, for_each_url};
use crate::config::ListenUrl;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// See the module.
pub struct Reserved {
    socket: TcpSocket,
}

/// Reserves every address of a flag. Done before anything else, so that a taken port is found
/// at once.
pub fn reserve(urls: &[ListenUrl], flag: &'static str) -> Result<Vec<Reserved>, ListenError> {
    for_each_url(urls, flag, |addresses| {
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match bind(*address) {
                Ok(socket) => return Ok(Reserved { socket }),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    })
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
    /// Listens from now on. Needs a runtime.
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
