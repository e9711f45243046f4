//! The addresses of the listen flags, bound before anything else so that a taken port is found at
//! once.

use std::net::TcpListener;

use crate::config::Config;
use crate::listen::{self, ListenError, Reserved};

/// The bound addresses.
pub(super) struct Listeners {
    /// For clients.
    pub(super) clients: Vec<TcpListener>,
    /// For metrics and probes only.
    pub(super) metrics: Vec<TcpListener>,
    /// For other members; connections are refused until this member can serve them.
    pub(super) peers: Vec<Reserved>,
}

impl Listeners {
    /// Binds every address.
    pub(super) fn bind(config: &Config) -> Result<Listeners, ListenError> {
        Ok(Listeners {
            clients: listen::bind(&config.listen_client_urls, "listen-client-urls")?,
            metrics: listen::bind(&config.listen_metrics_urls, "listen-metrics-urls")?,
            peers: listen::reserve(&config.cluster.listen_peer_urls, "listen-peer-urls")?,
        })
    }
}
