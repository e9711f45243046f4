//! Compares the names in a certificate with the address of the connection, as etcd does for peers.
//!
//! A certificate without alternative names is not compared. Otherwise the address must be one of
//! its IP addresses, or belong to one of its DNS names: by the addresses of the name, or by the
//! name of the address, which alone can match a wildcard.

use std::net::IpAddr;

use thiserror::Error;
use tokio::net::lookup_host;

use crate::certificate::ClientCertificate;

/// A certificate whose names do not match the address that it is used from.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the address {address} does not match any of the names {names:?} in the client certificate"
)]
pub struct AddressMismatch {
    /// The address of the connection.
    pub address: IpAddr,
    /// The DNS names and IP addresses in the certificate.
    pub names: Vec<String>,
}

impl ClientCertificate {
    /// Fails if the certificate has alternative names and none of them matches the address. DNS
    /// names are looked up, which may take long.
    ///
    /// # Errors
    /// If no name matches.
    pub async fn check_address(&self, address: IpAddr) -> Result<(), AddressMismatch> {
        let address = address.to_canonical();
        if self.ip_addresses.is_empty() && self.dns_names.is_empty() {
            return Ok(());
        }
        if self.ip_addresses.contains(&address) || self.is_named(address).await {
            return Ok(());
        }
        let ips = self.ip_addresses.iter().map(ToString::to_string);
        Err(AddressMismatch {
            address,
            names: self.dns_names.iter().cloned().chain(ips).collect(),
        })
    }

    async fn is_named(&self, address: IpAddr) -> bool {
        let exact = |name: &&String| !name.starts_with("*.");
        for name in self.dns_names.iter().filter(exact) {
            if let Ok(mut found) = lookup_host((name.as_str(), 0)).await
                && found.any(|found| found.ip().to_canonical() == address)
            {
                return true;
            }
        }
        if self.dns_names.is_empty() {
            return false;
        }
        let looked_up = tokio::task::spawn_blocking(move || dns_lookup::lookup_addr(&address));
        match looked_up.await {
            Ok(Ok(name)) => self.has_dns_name(name.trim_end_matches('.')),
            _ => false,
        }
    }

    fn has_dns_name(&self, name: &str) -> bool {
        self.dns_names
            .iter()
            .any(|pattern| match pattern.strip_prefix('*') {
                Some(suffix) if suffix.starts_with('.') => name.ends_with(suffix),
                _ => pattern == name,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(dns_names: &[&str], ips: &[&str]) -> ClientCertificate {
        ClientCertificate {
            common_name: String::new(),
            organizations: Vec::new(),
            dns_names: dns_names.iter().map(|name| (*name).to_owned()).collect(),
            ip_addresses: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        }
    }

    #[tokio::test]
    async fn address_matches_an_ip_or_the_address_of_a_name() {
        for (dns_names, ips, address, matches) in [
            (&[][..], &[][..], "10.0.0.1", true),
            (&[], &["10.0.0.1"], "10.0.0.1", true),
            (&[], &["10.0.0.1"], "::ffff:10.0.0.1", true),
            (&[], &["10.0.0.1"], "10.0.0.2", false),
            (&["localhost"], &[], "127.0.0.1", true),
            (&["localhost"], &["10.0.0.1"], "127.0.0.1", true),
            (&["name.invalid"], &[], "127.0.0.1", false),
        ] {
            let certificate = certificate(dns_names, ips);
            let checked = certificate.check_address(address.parse().unwrap()).await;
            assert_eq!(checked.is_ok(), matches, "{dns_names:?} {address}");
        }
    }

    #[test]
    fn wildcard_matches_the_end_of_a_name() {
        let certificate = certificate(&["*.example.test", "one.test"], &[]);
        for (name, matches) in [
            ("a.example.test", true),
            ("a.b.example.test", true),
            ("example.test", false),
            ("one.test", true),
            ("two.one.test", false),
        ] {
            assert_eq!(certificate.has_dns_name(name), matches, "{name}");
        }
    }
}
