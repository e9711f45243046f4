//! Authentication: from the credentials of a request to its user.
//!
//! ```text
//!  X-Remote-* headers   ──▶ FrontProxy ────┐
//!  client certificate   ──▶ Certificates ──┼──▶ AnyOf ──▶ Identity, none, or 401
//!  Authorization header ──▶ Tokens ────────┘
//! ```
//!
//! As in kube-apiserver, the handshake of TLS proves only that a client holds the key of its
//! certificate; each authenticator verifies the certificate against its own CA. Credentials that
//! were read, and front-proxy headers of everybody, are removed from the request.

mod certificates;
mod front_proxy;
mod tokens;
mod union;

use http::HeaderMap;

use crate::identity::{Connection, Identity};

pub use certificates::Certificates;
pub use front_proxy::{FrontProxy, FrontProxyHeaders, FrontProxyTrust};
pub use tokens::{TokenFileError, Tokens};
pub use union::AnyOf;

/// The credentials of a request are wrong. The reason is for the log, never for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unauthenticated {
    /// Why the credentials were refused.
    pub reason: String,
}

/// Finds the user of a request.
pub trait Authenticator: Send + Sync + 'static {
    /// Returns the user; none if the request has no credentials of the kinds that this
    /// authenticator knows. Credentials must be removed from the headers once they are read.
    ///
    /// # Errors
    /// If the request has credentials that are not accepted.
    fn authenticate(
        &self,
        headers: &mut HeaderMap,
        connection: &Connection,
    ) -> Result<Option<Identity>, Unauthenticated>;
}
