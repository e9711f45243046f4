//! Binds the addresses of the listen flags, before anything else of a start.

mod reserved;
mod tls_endpoint;

pub use reserved::{Reserved, reserve};
pub use tls_endpoint::{EndpointKind, HANDSHAKE_TIMEOUT, Security, TlsEndpoint, begins_with_tls};

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

/// An address that is listened at.
#[derive(Debug)]
pub struct Listening {
    /// The listener.
    pub listener: TcpListener,
    /// The protocols of its connections.
    pub security: Security,
}

/// Binds every address of a flag. Called before anything else, so that a taken port is found at
/// once. An `http` and an `https` URL may have one address.
pub fn bind(urls: &[ListenUrl], flag: &'static str) -> Result<Vec<Listening>, ListenError> {
    let mut distinct: Vec<(ListenUrl, Security)> = Vec::new();
    for url in urls {
        let security = match url.is_tls {
            true => Security::Tls,
            false => Security::Plain,
        };
        let is_fixed = !url.authority.ends_with(":0");
        let same = distinct.iter_mut().find(|(known, other)| {
            is_fixed && known.authority == url.authority && *other != security
        });
        match same {
            Some((_, other)) => *other = Security::Both,
            None => distinct.push((url.clone(), security)),
        }
    }
    let (urls, securities): (Vec<_>, Vec<_>) = distinct.into_iter().unzip();
    let listeners = for_each_url(&urls, flag, |addresses| TcpListener::bind(addresses))?;
    let listeners = listeners.into_iter().zip(securities);
    let listening = listeners.map(|(listener, security)| Listening { listener, security });
    Ok(listening.collect())
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
