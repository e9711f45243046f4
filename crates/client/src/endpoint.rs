//! The syntax of endpoints.
//!
//! Used when a client is created, and by tools that check a flag early. It never resolves
//! names.

/// Why a text is not a usable endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The endpoint asks for TLS.
    #[error(
        "endpoint {endpoint:?} needs TLS, which is not supported yet; use http:// or host:port"
    )]
    Tls {
        /// The endpoint as given.
        endpoint: String,
    },
    /// Neither `host:port` nor `http://host:port`.
    #[error("endpoint {endpoint:?} is neither host:port nor http://host:port")]
    Malformed {
        /// The endpoint as given.
        endpoint: String,
    },
}

/// Returns the URI to connect to.
///
/// # Errors
/// If the text is not an endpoint, or the endpoint requires TLS.
pub fn check_endpoint(endpoint: &str) -> Result<String, EndpointError> {
    let given = || endpoint.to_owned();
    let address = match endpoint.split_once("://") {
        None => endpoint,
        Some(("http", address)) => address,
        Some(("https" | "unixs", _)) => return Err(EndpointError::Tls { endpoint: given() }),
        Some(_) => return Err(EndpointError::Malformed { endpoint: given() }),
    };
    // etcd's clients ignore a path, too.
    let address = address.split('/').next().unwrap_or_default();
    let malformed = || EndpointError::Malformed { endpoint: given() };
    let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
    let port_is_number = port.parse::<u16>().is_ok();
    let host_is_whole = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || !port_is_number || !host_is_whole {
        return Err(malformed());
    }
    Ok(format!("http://{address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_with_or_without_scheme_is_an_endpoint() {
        for (given, uri) in [
            ("127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://localhost:2379", "http://localhost:2379"),
            ("http://localhost:2379/", "http://localhost:2379"),
            ("[::1]:2379", "http://[::1]:2379"),
        ] {
            assert_eq!(check_endpoint(given).unwrap(), uri);
        }
    }

    #[test]
    fn tls_endpoint_is_refused_with_the_reason() {
        let error = check_endpoint("https://localhost:2379").unwrap_err();
        assert!(error.to_string().contains("needs TLS"), "{error}");
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
            "a:b",
            "a:99999",
        ] {
            let error = check_endpoint(given).unwrap_err();
            assert!(matches!(error, EndpointError::Malformed { .. }), "{given}");
        }
    }
}
