//! TLS for listeners and dials: certificates, their reload, and the identity of the other side.
//!
//! ```text
//!  files ──▶ ServerTls ──accept──▶ TlsStream, ClientCertificate     listeners for clients and peers
//!  files ──▶ ClientTls ──connect─▶ TlsStream                        dials of members and of clients
//!            │
//!            └ the files are compared at most once a second; changed ones are loaded again
//! ```
//!
//! The server and the transport between members accept with [`ServerTls`]; the transport and the
//! client dial with [`ClientTls`]. The rules are etcd's: a listener with trusted CAs requires a
//! client certificate, a revocation list refuses serial numbers, and a certificate that is itself
//! in the file of trusted CAs is trusted.
//!
//! An API server has several CAs, each for another kind of client. Its listener requests a
//! certificate without verifying it ([`ServerTls::requesting_certificates`]), and each
//! authenticator verifies it against its own CA ([`ClientCa`]).
//!
//! Not in this crate: sockets, limits on handshakes, time limits, HTTP.

mod address;
mod allowed;
mod certificate;
mod cipher_suites;
mod client;
mod client_ca;
mod files;
mod reload;
mod requested;
mod revocation;
mod self_signed;
mod server;
mod trust;
mod versions;

pub use address::AddressMismatch;
pub use allowed::AllowedNames;
pub use certificate::ClientCertificate;
pub use cipher_suites::{CipherSuiteError, CipherSuites};

pub use client::{ClientOptions, ClientTls, ServerNameError};
pub use client_ca::{ClientCa, RefusedCertificate};
pub use files::{KeyPairFiles, LoadError};
pub use self_signed::{SelfSignedError, self_signed};
pub use server::{AcceptError, Accepted, ServerOptions, ServerTls};
pub use versions::{TlsVersion, VersionError, VersionRange};

pub use tokio_rustls::client::TlsStream as ClientStream;
pub use tokio_rustls::server::TlsStream as ServerStream;

/// The application protocol of gRPC clients.
pub const ALPN_GRPC: &[&str] = &["h2"];
/// The application protocols of listeners with gRPC and HTTP.
pub const ALPN_GRPC_AND_HTTP: &[&str] = &["h2", "http/1.1"];
/// The application protocol of listeners with HTTP/1.1 alone.
pub const ALPN_HTTP: &[&str] = &["http/1.1"];
/// No application protocol is negotiated: HTTP/1.1 between members, as among etcd's members.
pub const ALPN_NONE: &[&str] = &[];
