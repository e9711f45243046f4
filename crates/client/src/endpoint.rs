//! The syntax of endpoints.
//!
//! Used when a client is created, and by tools that compare endpoints. It never resolves names.

/// Why a text is not a usable endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Neither `host:port` nor a URL of a known scheme.
    #[error("endpoint {endpoint:?} is none of host:port, http://host:port and https://host:port")]
    Malformed {
        /// The endpoint as given.
        endpoint: String,
    },
}

/// The scheme of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http`: without TLS.
    Http,
    /// `https`: with TLS.
    Https,
}

/// An endpoint in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointParts {
    /// The scheme, if one is given; the options of the client decide otherwise.
    pub scheme: Option<Scheme>,
    /// Host and port; an IPv6 address is in brackets.
    pub address: String,
}

impl EndpointParts {
    /// Returns the host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// Parses an endpoint.
///
/// # Errors
/// If the text is not an endpoint.
pub fn parse_endpoint(endpoint: &str) -> Result<EndpointParts, EndpointError> {
    let malformed = || EndpointError::Malformed {
        endpoint: endpoint.to_owned(),
    };
    let (scheme, address) = match endpoint.split_once("://") {
        None => (None, endpoint),
        Some(("http", address)) => (Some(Scheme::Http), address),
        Some(("https", address)) => (Some(Scheme::Https), address),
        Some(_) => return Err(malformed()),
    };
    // etcd's clients ignore a path, too.
    let address = address.split('/').next().unwrap_or_default();
    let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
    let port_is_number = port.parse::<u16>().is_ok();
    let host_is_whole = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || !port_is_number || !host_is_whole {
        return Err(malformed());
    }
    Ok(EndpointParts {
        scheme,
        address: address.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_with_or_without_scheme_is_an_endpoint() {
        for (given, scheme, address, host) in [
            ("127.0.0.1:2379", None, "127.0.0.1:2379", "127.0.0.1"),
            (
                "http://localhost:2379",
                Some(Scheme::Http),
                "localhost:2379",
                "localhost",
            ),
            (
                "https://localhost:2379/",
                Some(Scheme::Https),
                "localhost:2379",
                "localhost",
            ),
            ("[::1]:2379", None, "[::1]:2379", "::1"),
        ] {
            let parts = parse_endpoint(given).unwrap();
            assert_eq!((parts.scheme, parts.address.as_str()), (scheme, address));
            assert_eq!(parts.host(), host);
        }
    }

    #[test]
    fn other_text_is_malformed() {
        for given in [
            "",
            "localhost",
            "localhost:",
            ":2379",
            "::1:2379",
            "ftp://a:1",
            "unixs://a:1",
            "https://a",
            "a:b",
            "a:99999",
        ] {
            let error = parse_endpoint(given).unwrap_err();
            assert!(matches!(error, EndpointError::Malformed { .. }), "{given}");
        }
    }
}
