//! Binds the addresses of the listen flags, before anything else of a start.

mod reserved;

pub use reserved::{Reserved, reserve};

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use thiserror::Error;

use crate::config::ListenUrl;

/// An address that cannot be listened at.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ListenError {
    /// Another program listens at the address.
    #[error("{url} is taken: stop the program that listens there, or choose another with --{flag}")]
    Taken {
        url: String,
        flag: &'static str,
        source: io::Error,
    },
    /// Listening failed for another reason.
    #[error("cannot listen at {url}: check --{flag}")]
    Refused {
        url: String,
        flag: &'static str,
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
}

/// Binds every address of a flag. Called before anything else, so that a taken port is found at
/// once.
pub fn bind(urls: &[ListenUrl], flag: &'static str) -> Result<Vec<TcpListener>, ListenError> {
    for_each_url(urls, flag, |addresses| TcpListener::bind(addresses))
}

/// Calls `listen_at` with the addresses of every URL of a flag. `localhost` may be two
/// addresses; one of them is enough, as for etcd.
fn for_each_url<T>(
    urls: &[ListenUrl],
    flag: &'static str,
    listen_at: impl Fn(&[SocketAddr]) -> io::Result<T>,
) -> Result<Vec<T>, ListenError> {
    let mut all = Vec::new();
    for listen in urls {
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::Taken {
                url: listen.url.clone(),
                flag,
                source,
            },
            _ => ListenError::Refused {
                url: listen.url.clone(),
                flag,
                source,
            },
        };
        let addresses = listen.authority.to_socket_addrs().map_err(refused)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        all.push(listen_at(&addresses).map_err(refused)?);
    }
    Ok(all)
}
