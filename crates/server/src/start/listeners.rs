//! The addresses of the listen flags, bound before anything else so that a taken port is found at
//! once.

use crate::config::Config;
use crate::listen::{self, ListenError, Listening, Reserved};
use crate::serve::{ClientListener, Traffic};

/// The bound addresses.
pub(super) struct Listeners {
    /// For clients.
    pub(super) clients: Vec<ClientListener>,
    /// For metrics and probes only.
    pub(super) metrics: Vec<Listening>,
    /// For other members; connections are refused until this member can serve them.
    pub(super) peers: Vec<Reserved>,
}

impl Listeners {
    /// Binds every address.
    pub(super) fn bind(config: &Config) -> Result<Listeners, ListenError> {
        let http = &config.listen_client_http_urls;
        let traffic = match http.is_empty() {
            true => Traffic::All,
            false => Traffic::Grpc,
        };
        let clients = listen::bind(&config.listen_client_urls, "listen-client-urls")?;
        let http = listen::bind(http, "listen-client-http-urls")?;
        let with = |traffic| move |listening| ClientListener { listening, traffic };
        let clients = clients.into_iter().map(with(traffic));
        Ok(Listeners {
            clients: clients
                .chain(http.into_iter().map(with(Traffic::Http)))
                .collect(),
            metrics: listen::bind(&config.listen_metrics_urls, "listen-metrics-urls")?,
            peers: listen::reserve(&config.cluster.listen_peer_urls, "listen-peer-urls")?,
        })
    }
}
