//! Dialling: the certificate that this side presents, and which servers it trusts.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::allowed::AllowedNames;
use crate::cipher_suites::CipherSuites;
use crate::files::{KeyPairFiles, LoadError, key_pair};
use crate::reload::Reloading;
use crate::trust::{AnyServer, Trust, TrustedServer};
use crate::versions::VersionRange;

/// The settings of dials. `Default` trusts the CAs of the system and presents no certificate.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// The trusted CAs, in PEM format; `None`: those of the system.
    pub trusted_ca_file: Option<PathBuf>,
    /// The certificate that this side presents to servers that ask for one.
    pub identity: Option<KeyPairFiles>,
    /// The name that the certificate of the server must have; `None`: the dialled host.
    pub server_name: Option<String>,
    /// Accept every certificate of a server. The connection is encrypted, but the server may be
    /// anyone.
    pub skip_verification: bool,
    /// Restricts the certificates of servers further; without effect if `skip_verification` is set.
    pub allowed: AllowedNames,
    /// The versions of TLS.
    pub versions: VersionRange,
    /// The cipher suites.
    pub cipher_suites: CipherSuites,
    /// The application protocols to negotiate, such as [`ALPN_GRPC`](crate::ALPN_GRPC).
    pub alpn: &'static [&'static str],
}

/// A host that cannot be the name of a server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{host:?} is neither a host name nor an IP address")]
pub struct ServerNameError {
    /// The host as given.
    pub host: String,
}

/// Dials servers. Cheap to clone. Changed files are used by the next dials.
#[derive(Clone)]
pub struct ClientTls {
    server_name: Option<ServerName<'static>>,
    config: Arc<Reloading<Arc<ClientConfig>>>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files of the options.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn new(options: ClientOptions) -> Result<ClientTls, LoadError> {
        let server_name =
            match &options.server_name {
                Some(name) => Some(server_name(name).map_err(|error| {
                    LoadError::Settings(rustls::Error::General(error.to_string()))
                })?),
                None => None,
            };
        let mut files: Vec<PathBuf> = options.trusted_ca_file.iter().cloned().collect();
        if let Some(identity) = &options.identity {
            files.extend([identity.certificate.clone(), identity.key.clone()]);
        }
        let config = Reloading::new(files, move || build(&options).map(Arc::new))?;
        Ok(ClientTls {
            server_name,
            config: Arc::new(config),
        })
    }

    /// Performs the handshake with the server at `host`, a host name or an IP address; an IPv6
    /// address may be in brackets.
    ///
    /// # Errors
    /// If the handshake fails; the innermost error says why.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => server_name(host)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        let config = Arc::clone(&*self.config.current());
        TlsConnector::from(config).connect(name, stream).await
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, ServerNameError> {
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(|_| ServerNameError {
        host: host.chars().take(200).collect(),
    })
}

fn build(options: &ClientOptions) -> Result<ClientConfig, LoadError> {
    let provider = options.cipher_suites.provider();
    let verifier: Arc<dyn ServerCertVerifier> = match options.skip_verification {
        true => Arc::new(AnyServer::new(&provider)),
        false => {
            let trust = match &options.trusted_ca_file {
                Some(file) => Trust::from_file(file)?,
                None => Trust::of_system()?,
            };
            let allowed = options.allowed.clone();
            Arc::new(TrustedServer::new(trust, allowed, &provider)?)
        }
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&options.versions.protocols())
        .map_err(LoadError::Settings)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &options.identity {
        Some(files) => {
            let identity = SingleCertAndKey::from(key_pair(files, &provider)?);
            builder.with_client_cert_resolver(Arc::new(identity))
        }
        None => builder.with_no_client_auth(),
    };
    let alpn = options.alpn.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = alpn.collect();
    // A resumed session would keep the identity of its first handshake after a reload.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}
