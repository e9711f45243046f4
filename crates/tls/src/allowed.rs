//! Restricts the certificates of the other side to some names.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, OtherError};
use thiserror::Error as ThisError;

use std::sync::Arc;

use crate::certificate::ClientCertificate;

/// The names that a certificate must have one of, besides being trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AllowedNames {
    /// Every trusted certificate is accepted.
    #[default]
    Any,
    /// One of these common names.
    CommonNames(Vec<String>),
    /// One of these host names or IP addresses as alternative name.
    Hostnames(Vec<String>),
}

/// A trusted certificate without an allowed name.
#[derive(Debug, ThisError)]
#[error("client certificate authentication failed: {found} is not one of the allowed names")]
pub(crate) struct NameNotAllowed {
    found: String,
}

impl AllowedNames {
    /// Fails if the certificate has none of the names.
    pub(crate) fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let is_allowed = match self {
            AllowedNames::Any => true,
            AllowedNames::CommonNames(names) => {
                let identity = ClientCertificate::from_der(certificate);
                identity.is_some_and(|identity| names.contains(&identity.common_name))
            }
            AllowedNames::Hostnames(names) => {
                let certificate = ParsedCertificate::try_from(certificate)?;
                names.iter().any(|name| {
                    ServerName::try_from(name.as_str())
                        .is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
                })
            }
        };
        match is_allowed {
            true => Ok(()),
            false => Err(self.refusal(certificate)),
        }
    }

    fn refusal(&self, certificate: &CertificateDer<'_>) -> Error {
        let identity = ClientCertificate::from_der(certificate);
        let found = match (self, identity) {
            (_, None) => "a malformed certificate".to_owned(),
            (AllowedNames::Hostnames(_), Some(identity)) => {
                let ips = identity.ip_addresses.iter().map(ToString::to_string);
                let names = identity.dns_names.iter().cloned().chain(ips);
                format!("{:?}", names.collect::<Vec<_>>())
            }
            (_, Some(identity)) => format!("{:?}", identity.common_name),
        };
        let reason = OtherError(Arc::new(NameNotAllowed { found }));
        Error::InvalidCertificate(CertificateError::Other(reason))
    }
}
