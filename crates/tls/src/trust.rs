//! The certificates that are trusted, and the verification of a server's certificate.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::allowed::AllowedNames;
use crate::files::{LoadError, certificates};

/// What the other side uses its certificate for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Server,
    Client,
}

/// The trusted CAs.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) store: Arc<RootCertStore>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Reads the trusted CAs of a file.
    pub(crate) fn from_file(path: &Path) -> Result<Trust, LoadError> {
        let certificates = certificates(path)?;
        let mut store = RootCertStore::empty();
        for certificate in &certificates {
            store
                .add(certificate.clone())
                .map_err(|source| LoadError::Ca {
                    path: path.to_owned(),
                    source,
                })?;
        }
        Ok(Trust {
            store: Arc::new(store),
            certificates,
        })
    }

    /// Returns the trusted CAs of this system.
    pub(crate) fn of_system() -> Result<Trust, LoadError> {
        let found = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(found.certs.iter().cloned());
        match store.is_empty() {
            true => Err(LoadError::NoSystemRoots),
            false => Ok(Trust {
                store: Arc::new(store),
                certificates: found.certs,
            }),
        }
    }

    /// Returns whether a certificate is itself one of the trusted ones. Such a certificate needs
    /// no other issuer, as in Go; self-signed certificates are used in this way.
    pub(crate) fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.certificates.iter().any(|known| known == certificate)
    }
}

/// Checks the validity and the usage of a certificate that is itself trusted.
pub(crate) fn check_trusted_leaf(
    certificate: &CertificateDer<'_>,
    usage: Usage,
    now: UnixTime,
) -> Result<(), Error> {
    let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| bad())?;
    let validity = parsed.validity();
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now_s < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now_s > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usages = parsed.extended_key_usage().map_err(|_| bad())?;
    let is_allowed = usages.is_none_or(|usages| {
        usages.value.any
            || match usage {
                Usage::Server => usages.value.server_auth,
                Usage::Client => usages.value.client_auth,
            }
    });
    match is_allowed {
        true => Ok(()),
        false => Err(CertificateError::InvalidPurpose.into()),
    }
}

/// Verifies the certificate of a server: trusted, valid, of the dialled name and of an allowed
/// one.
#[derive(Debug)]
pub(crate) struct TrustedServer {
    trust: Trust,
    chains: Arc<WebPkiServerVerifier>,
    allowed: AllowedNames,
}

impl TrustedServer {
    pub(crate) fn new(
        trust: Trust,
        allowed: AllowedNames,
        provider: &Arc<CryptoProvider>,
    ) -> Result<TrustedServer, LoadError> {
        let (store, provider) = (Arc::clone(&trust.store), Arc::clone(provider));
        let chains = WebPkiServerVerifier::builder_with_provider(store, provider).build()?;
        Ok(TrustedServer {
            trust,
            chains,
            allowed,
        })
    }
}

impl ServerCertVerifier for TrustedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trust.contains(end_entity) {
            check_trusted_leaf(end_entity, Usage::Server, now)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        } else {
            self.chains.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            )?;
        }
        self.allowed.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
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

/// Accepts every certificate of a server: for self-signed certificates of members, and for
/// clients that ask for it.
#[derive(Debug)]
pub(crate) struct AnyServer {
    provider: Arc<CryptoProvider>,
}

impl AnyServer {
    pub(crate) fn new(provider: &Arc<CryptoProvider>) -> AnyServer {
        AnyServer {
            provider: Arc::clone(provider),
        }
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if signature.scheme == SignatureScheme::ECDSA_NISTP521_SHA512 {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if signature.scheme == SignatureScheme::ECDSA_NISTP521_SHA512 {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    /// The supported schemes and P-521, which the self-signed certificates of Go members have.
    /// Its signatures are not verified: the certificate is not, either.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let mut schemes = algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}
