//! TLS settings of a client, and which endpoints use them.
//!
//! The rules are those of etcd's Go client: `https` endpoints always use TLS and `http` endpoints
//! never do; an endpoint without a scheme uses it if there are settings, or if the first endpoint
//! is an `https` one. Unlike there, each endpoint is dialled as its own scheme says.

use std::path::PathBuf;

use portunus_tls::{ALPN_GRPC, ClientOptions, ClientTls};
pub use portunus_tls::{KeyPairFiles, LoadError};

use crate::endpoint::{EndpointParts, Scheme};

/// The settings as given. `Default` trusts the CAs of the system and presents no certificate.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// The trusted CAs, in PEM format; `None`: those of the system.
    pub trusted_ca_file: Option<PathBuf>,
    /// The certificate that the client presents.
    pub identity: Option<KeyPairFiles>,
    /// Accept every certificate of a server; for tests only, because the server may be anyone.
    pub skip_verification: bool,
}

/// Loaded settings. Changed files are used by the next connections.
#[derive(Debug, Clone)]
pub struct Tls(ClientTls);

impl Tls {
    /// Reads the files of the settings.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn new(options: TlsOptions) -> Result<Tls, LoadError> {
        let options = ClientOptions {
            trusted_ca_file: options.trusted_ca_file,
            identity: options.identity,
            skip_verification: options.skip_verification,
            alpn: ALPN_GRPC,
            ..ClientOptions::default()
        };
        Ok(Tls(ClientTls::new(options)?))
    }

    pub(crate) fn connector(&self) -> &ClientTls {
        &self.0
    }
}

/// Returns the settings of each endpoint; `None` for one without TLS.
///
/// # Errors
/// If an endpoint needs the CAs of the system and they cannot be loaded.
pub(crate) fn for_endpoints(
    endpoints: &[EndpointParts],
    given: Option<&Tls>,
) -> Result<Vec<Option<Tls>>, LoadError> {
    let first_is_https = endpoints
        .first()
        .is_some_and(|first| first.scheme == Some(Scheme::Https));
    let uses_tls = |endpoint: &EndpointParts| match endpoint.scheme {
        Some(scheme) => scheme == Scheme::Https,
        None => given.is_some() || first_is_https,
    };
    let settings = match given {
        Some(given) => Some(given.clone()),
        None if endpoints.iter().any(uses_tls) => Some(Tls::new(TlsOptions::default())?),
        None => None,
    };
    let of_endpoint = |endpoint| settings.clone().filter(|_| uses_tls(endpoint));
    Ok(endpoints.iter().map(of_endpoint).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::parse_endpoint;

    fn with_tls(endpoints: &[&str], given: bool) -> Vec<bool> {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|endpoint| parse_endpoint(endpoint).unwrap())
            .collect();
        let any_server = || TlsOptions {
            skip_verification: true,
            ..TlsOptions::default()
        };
        let given = given.then(|| Tls::new(any_server()).unwrap());
        let settings = for_endpoints(&endpoints, given.as_ref()).unwrap();
        settings.iter().map(Option::is_some).collect()
    }

    #[test]
    fn scheme_decides_and_settings_decide_for_endpoints_without_one() {
        let all = ["a:1", "http://b:1", "https://c:1"];
        assert_eq!(with_tls(&all, true), [true, false, true]);
        assert_eq!(with_tls(&all[..2], false), [false, false]);
    }

    #[test]
    fn endpoint_without_a_scheme_follows_a_first_endpoint_with_tls() {
        let endpoints = ["https://a:1", "b:1"].map(|text| parse_endpoint(text).unwrap());
        // A machine without trusted CAs refuses it; it is never dialled without TLS.
        if let Ok(settings) = for_endpoints(&endpoints, None) {
            assert!(settings.iter().all(Option::is_some));
        }
    }
}
