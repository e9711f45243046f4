//! Cipher suites by the names that Go gives them.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, cipher_suite as suite};
use rustls::{ProtocolVersion, SupportedCipherSuite};
use thiserror::Error;

/// Every supported suite by its name in Go. The two names without a hash are older ones that
/// etcd accepts, too.
const SUITES: &[(&str, SupportedCipherSuite)] = &[
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The cipher suites that a connection may use. `Default` allows every supported one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CipherSuites {
    /// Empty: every supported one.
    chosen: Vec<SupportedCipherSuite>,
}

/// A cipher suite that is unknown or not supported.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "unexpected TLS cipher suite {name:?}: supported are {}",
    CipherSuites::names().join(", ")
)]
pub struct CipherSuiteError {
    /// The name as given.
    pub name: String,
}

impl CipherSuites {
    /// Parses names, such as those of `--cipher-suites`. No name: every supported suite.
    ///
    /// # Errors
    /// If a name is not a supported suite.
    pub fn parse<'n>(
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<CipherSuites, CipherSuiteError> {
        let mut chosen = Vec::new();
        for name in names {
            let suite = SUITES.iter().find(|(known, _)| *known == name);
            let Some((_, suite)) = suite else {
                return Err(CipherSuiteError {
                    name: name.chars().take(100).collect(),
                });
            };
            if !chosen.contains(suite) {
                chosen.push(*suite);
            }
        }
        Ok(CipherSuites { chosen })
    }

    /// Returns the names of all supported suites.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        SUITES.iter().map(|(name, _)| *name).collect()
    }

    /// Returns whether the suites are restricted.
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        !self.chosen.is_empty()
    }

    /// Returns the cryptography with these suites. A list without suites of TLS 1.3 does not
    /// restrict TLS 1.3, as in Go.
    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = ring::default_provider();
        if self.is_restricted() {
            let is_tls13 =
                |suite: &SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_3;
            let restricts_tls13 = self.chosen.iter().any(is_tls13);
            provider.cipher_suites.retain(|suite| {
                self.chosen.contains(suite) || (is_tls13(suite) && !restricts_tls13)
            });
        }
        Arc::new(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_suite_has_a_name() {
        for suite in ring::ALL_CIPHER_SUITES {
            assert!(SUITES.iter().any(|(_, named)| named == suite), "{suite:?}");
        }
    }

    #[test]
    fn suites_of_tls12_leave_tls13_unrestricted() {
        let both = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
        let suites = CipherSuites::parse(both.split(',')).unwrap();
        assert_eq!(suites.provider().cipher_suites.len(), 3 + 2);
        let one = CipherSuites::parse(["TLS_AES_128_GCM_SHA256"]).unwrap();
        assert_eq!(one.provider().cipher_suites.len(), 1);
        let all = CipherSuites::parse([]).unwrap();
        assert_eq!(all.provider().cipher_suites.len(), 9);
    }

    #[test]
    fn unsupported_suite_is_refused_with_the_supported_ones() {
        let refused = CipherSuites::parse(["TLS_RSA_WITH_AES_128_CBC_SHA"]).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("\"TLS_RSA_WITH_AES_128_CBC_SHA\""), "{text}");
        assert!(
            text.contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            "{text}"
        );
    }
}
