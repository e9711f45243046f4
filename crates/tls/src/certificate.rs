//! The identity in a certificate.

use std::net::IpAddr;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The verified certificate of a client or peer. Requests carry it in their extensions, in an
/// [`Arc`](std::sync::Arc), if their connection has one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The common name of the subject; empty if there is none.
    pub common_name: String,
    /// The organizations of the subject, in the order of the certificate.
    pub organizations: Vec<String>,
    /// The DNS names of the subject.
    pub dns_names: Vec<String>,
    /// The IP addresses of the subject.
    pub ip_addresses: Vec<IpAddr>,
}

impl ClientCertificate {
    /// Parses a certificate in DER format. Returns `None` if it is malformed.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<ClientCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        // Of several common names the last one counts, as in Go.
        let common_name = certificate.subject().iter_common_name().last();
        let common_name = common_name.and_then(|name| name.as_str().ok());
        let organizations = certificate.subject().iter_organization();
        let organizations = organizations.filter_map(|name| name.as_str().ok());
        let organizations = organizations.map(str::to_owned).collect();
        let names = certificate.subject_alternative_name().ok()?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let mut dns_names = Vec::new();
        let mut ip_addresses = Vec::new();
        for name in names {
            match name {
                GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => ip_addresses.extend(ip_address(bytes)),
                _ => {}
            }
        }
        Some(ClientCertificate {
            common_name: common_name.unwrap_or_default().to_owned(),
            organizations,
            dns_names,
            ip_addresses,
        })
    }
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6()).ok()
}
