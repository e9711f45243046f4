//! Accepting: the certificate of a listener, and which clients it admits.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, InvalidMessage,
    ServerConfig, SignatureScheme,
};
use thiserror::Error as ThisError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::address::AddressMismatch;
use crate::allowed::AllowedNames;
use crate::certificate::ClientCertificate;
use crate::cipher_suites::CipherSuites;
use crate::files::{KeyPairFiles, LoadError, key_pair};
use crate::reload::{Reloading, chain};
use crate::requested::AnyClient;
use crate::revocation::RevokedSerials;
use crate::trust::{Trust, Usage, check_trusted_leaf};
use crate::versions::VersionRange;

/// The settings of a listener.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The certificate of the listener.
    pub identity: KeyPairFiles,
    /// The trusted CAs of clients, in PEM format. With a file every client must present a
    /// certificate, as in etcd.
    pub trusted_ca_file: Option<PathBuf>,
    /// Revoked certificates of clients, in DER or PEM format.
    pub crl_file: Option<PathBuf>,
    /// Restricts the certificates of clients further.
    pub allowed: AllowedNames,
    /// The versions of TLS.
    pub versions: VersionRange,
    /// The cipher suites.
    pub cipher_suites: CipherSuites,
    /// The application protocols that are offered, the preferred one first.
    pub alpn: &'static [&'static str],
}

/// Accepts TLS connections. Changed files are used by the next handshakes.
pub struct ServerTls {
    config: Reloading<Arc<ServerConfig>>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// A connection after its handshake.
pub struct Accepted<S> {
    /// The encrypted stream.
    pub stream: TlsStream<S>,
    /// The certificate of the client, verified unless the listener only requests one; `None` if
    /// the client presented none.
    pub client: Option<Arc<ClientCertificate>>,
}

impl<S> Accepted<S> {
    /// Returns the certificates that the client presented, in DER format, its own first.
    pub fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        let presented = self.stream.get_ref().1.peer_certificates();
        presented.unwrap_or_default().iter().map(AsRef::as_ref)
    }
}

/// Why a connection was refused.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum AcceptError {
    /// The client does not use TLS.
    #[error("the client sent a request without TLS to a TLS listener")]
    Plaintext,
    /// The client presented no certificate.
    #[error("the client presented no certificate")]
    NoCertificate,
    /// The certificate of the client is not accepted.
    #[error("{0}")]
    Certificate(Error),
    /// The certificate of the client has none of the allowed names.
    #[error("{0}")]
    Name(String),
    /// The names in the certificate do not match the address of the client.
    #[error(transparent)]
    Address(#[from] AddressMismatch),
    /// The client refused the certificate of this listener, or ended the handshake otherwise.
    #[error("the client ended the handshake")]
    EndedByClient(#[source] io::Error),
    /// The handshake failed for another reason.
    #[error("the handshake failed")]
    Handshake(#[source] io::Error),
    /// The handshake took too long.
    #[error("the handshake took longer than {seconds} s")]
    TimedOut {
        /// The time limit.
        seconds: u64,
    },
}

impl AcceptError {
    /// Every value of [`Self::kind`].
    pub const KINDS: [&'static str; 11] = [
        "plaintext",
        "no_certificate",
        "expired",
        "revoked",
        "unknown_issuer",
        "certificate",
        "name",
        "address",
        "ended_by_client",
        "handshake",
        "timeout",
    ];

    /// Returns a short name of the kind of refusal, for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            AcceptError::Plaintext => "plaintext",
            AcceptError::NoCertificate => "no_certificate",
            AcceptError::Certificate(Error::InvalidCertificate(error)) => match error {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
                CertificateError::Revoked => "revoked",
                // A foreign CA may have the name of a trusted one.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "unknown_issuer"
                }
                _ => "certificate",
            },
            AcceptError::Certificate(_) => "certificate",
            AcceptError::Name(_) => "name",
            AcceptError::Address(_) => "address",
            AcceptError::EndedByClient(_) => "ended_by_client",
            AcceptError::Handshake(_) => "handshake",
            AcceptError::TimedOut { .. } => "timeout",
        }
    }

    /// Returns the reason with its causes, in one line.
    #[must_use]
    pub fn reason(&self) -> String {
        chain(self)
    }

    fn of(error: io::Error) -> AcceptError {
        let inner: Option<&Error> = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                AcceptError::Plaintext
            }
            Some(Error::NoCertificatesPresented) => AcceptError::NoCertificate,
            Some(Error::InvalidCertificate(CertificateError::Other(refused))) => {
                AcceptError::Name(refused.0.to_string())
            }
            Some(refused @ Error::InvalidCertificate(_)) => {
                AcceptError::Certificate(refused.clone())
            }
            Some(Error::AlertReceived(_)) => AcceptError::EndedByClient(error),
            None => AcceptError::EndedByClient(error),
            Some(_) => AcceptError::Handshake(error),
        }
    }
}

impl ServerTls {
    /// Reads the files of the options.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn new(options: ServerOptions) -> Result<ServerTls, LoadError> {
        let identity = &options.identity;
        let mut files = vec![identity.certificate.clone(), identity.key.clone()];
        files.extend(options.trusted_ca_file.clone());
        files.extend(options.crl_file.clone());
        let config = Reloading::new(files, move || build(&options).map(Arc::new))?;
        Ok(ServerTls { config })
    }

    /// Reads the files of the options for a listener that requests a certificate and verifies
    /// only that the client holds its key. A client without a certificate is accepted, too. The
    /// caller verifies the presented [certificates](Accepted::certificates) with
    /// [`ClientCa`](crate::ClientCa); the trusted CAs, the revocation list and the allowed names
    /// of the options are not used.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn requesting_certificates(options: ServerOptions) -> Result<ServerTls, LoadError> {
        let identity = &options.identity;
        let files = vec![identity.certificate.clone(), identity.key.clone()];
        let config = Reloading::new(files, move || {
            let provider = options.cipher_suites.provider();
            let clients = Arc::new(AnyClient::new(&provider));
            config(&options, &provider, Some(clients)).map(Arc::new)
        })?;
        Ok(ServerTls { config })
    }

    /// Performs the handshake with a client. There is no time limit.
    ///
    /// # Errors
    /// If the client is refused or ends the connection.
    pub async fn accept<S>(&self, stream: S) -> Result<Accepted<S>, AcceptError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&*self.config.current());
        let accepted = TlsAcceptor::from(config).accept(stream).await;
        let stream = accepted.map_err(AcceptError::of)?;
        let presented = stream.get_ref().1.peer_certificates();
        let client = match presented.and_then(|chain| chain.first()) {
            None => None,
            Some(certificate) => Some(Arc::new(ClientCertificate::from_der(certificate).ok_or(
                AcceptError::Certificate(Error::InvalidCertificate(CertificateError::BadEncoding)),
            )?)),
        };
        Ok(Accepted { stream, client })
    }
}

fn build(options: &ServerOptions) -> Result<ServerConfig, LoadError> {
    let provider = options.cipher_suites.provider();
    let Some(file) = &options.trusted_ca_file else {
        return config(options, &provider, None);
    };
    let trust = Trust::from_file(file)?;
    let store = Arc::clone(&trust.store);
    let chains = WebPkiClientVerifier::builder_with_provider(store, Arc::clone(&provider));
    let revoked = match &options.crl_file {
        Some(file) => RevokedSerials::from_file(file)?,
        None => RevokedSerials::default(),
    };
    let clients = AdmittedClients {
        trust,
        chains: chains.build()?,
        revoked,
        allowed: options.allowed.clone(),
    };
    config(options, &provider, Some(Arc::new(clients)))
}

/// Builds the settings of a listener; without a verifier it requests no certificate.
fn config(
    options: &ServerOptions,
    provider: &Arc<CryptoProvider>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, LoadError> {
    let identity = key_pair(&options.identity, provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&options.versions.protocols())
        .map_err(LoadError::Settings)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(clients),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    let alpn = options.alpn.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = alpn.collect();
    // A resumed session would skip the verification of the client's certificate, which may be
    // revoked by now.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Verifies the certificate of a client: trusted, valid, not revoked and of an allowed name.
#[derive(Debug)]
struct AdmittedClients {
    trust: Trust,
    chains: Arc<dyn ClientCertVerifier>,
    revoked: RevokedSerials,
    allowed: AllowedNames,
}

impl ClientCertVerifier for AdmittedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.trust.contains(end_entity) {
            true => check_trusted_leaf(end_entity, Usage::Client, now)?,
            false => {
                let chains = &self.chains;
                chains.verify_client_cert(end_entity, intermediates, now)?;
            }
        }
        self.revoked
            .check(std::iter::once(end_entity).chain(intermediates))?;
        self.allowed.check(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
