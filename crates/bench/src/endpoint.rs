//! Where and as whom to connect.

use std::sync::Arc;

use portunus_tls::ClientTls;

/// The client address of a member, and the user whose requests go there. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The address as `host:port`.
    pub address: Arc<str>,
    /// The settings of dials with TLS; `None` without TLS.
    pub tls: Option<ClientTls>,
    /// The token of the user, sent with every request; `None` without authentication.
    pub token: Option<Arc<str>>,
}

impl Endpoint {
    /// Returns the endpoint of a server without TLS and authentication.
    #[must_use]
    pub fn plain(address: &str) -> Endpoint {
        Endpoint {
            address: address.into(),
            tls: None,
            token: None,
        }
    }
}
