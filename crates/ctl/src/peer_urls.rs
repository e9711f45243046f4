//! Peer URLs as etcd accepts them, with its error texts for the others.
//!
//! `snapshot restore` and `member` read them. Names are never resolved.

use crate::go::quote::quote;

/// Why a text is no peer URL.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerUrlError {
    /// Not a URL at all.
    #[error("parse {}: {problem}", quote(text.as_bytes()))]
    Malformed {
        /// As given.
        text: String,
        /// Go's error text.
        problem: String,
    },
    /// A URL with another scheme.
    #[error("URL scheme must be http, https, unix, or unixs: {0}")]
    Scheme(String),
    /// A URL without host or port.
    #[error("URL address does not have the form \"host:port\": {0}")]
    HostPort(String),
    /// More than host and port.
    #[error("URL must not contain a path: {0}")]
    Path(String),
}

/// Parses and sorts URLs.
pub fn parse_all<'t>(
    texts: impl IntoIterator<Item = &'t str>,
) -> Result<Vec<String>, PeerUrlError> {
    let mut urls = texts
        .into_iter()
        .map(parse)
        .collect::<Result<Vec<_>, _>>()?;
    urls.sort();
    Ok(urls)
}

fn parse(text: &str) -> Result<String, PeerUrlError> {
    let text = text.trim();
    let malformed = |problem: &str| PeerUrlError::Malformed {
        text: text.to_owned(),
        problem: problem.to_owned(),
    };
    let Some((scheme, rest)) = split_scheme(text) else {
        let first_segment = text.split('/').next().unwrap_or_default();
        return Err(match (text.starts_with(':'), first_segment.contains(':')) {
            (true, _) => malformed("missing protocol scheme"),
            (false, true) => malformed("first path segment in URL cannot contain colon"),
            (false, false) => PeerUrlError::Scheme(text.to_owned()),
        });
    };
    let (authority, path) = match rest.strip_prefix("//") {
        None => ("", rest),
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
    };
    let (host, port) = split_host(authority).ok_or_else(|| malformed("missing ']' in host"))?;
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if !port.strip_prefix(':').is_none_or(is_port) {
        let port = quote(port.as_bytes());
        return Err(malformed(&format!("invalid port {port} after host")));
    }
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" => {
            let is_whole = !host.contains(':') || host.starts_with('[');
            if port.is_empty() || !is_whole {
                return Err(PeerUrlError::HostPort(text.to_owned()));
            }
            if !path.is_empty() {
                return Err(PeerUrlError::Path(text.to_owned()));
            }
        }
        "unix" | "unixs" => {}
        _ => return Err(PeerUrlError::Scheme(text.to_owned())),
    }
    Ok(format!("{scheme}:{rest}"))
}

/// What is before and after the first colon, if the former can be a scheme.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let begins_well = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let goes_on_well = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (begins_well && scheme.chars().all(goes_on_well)).then_some((scheme, rest))
}

/// Host and port, the port with its colon or empty; `None` if a bracket is never closed.
fn split_host(authority: &str) -> Option<(&str, &str)> {
    let host_end = match authority.starts_with('[') {
        true => authority.rfind(']')? + 1,
        false => authority.rfind(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts as etcdctl 3.7.1 printed them.
    #[test]
    fn invalid_peer_url_is_refused_with_etcd_text() {
        for (url, problem) in [
            ("", "URL scheme must be http, https, unix, or unixs: "),
            ("h:1", "URL scheme must be http, https, unix, or unixs: h:1"),
            (
                "ftp://h:1",
                "URL scheme must be http, https, unix, or unixs: ftp://h:1",
            ),
            (
                "http://h",
                "URL address does not have the form \"host:port\": http://h",
            ),
            (
                "http:h:1",
                "URL address does not have the form \"host:port\": http:h:1",
            ),
            ("http://h:1/x", "URL must not contain a path: http://h:1/x"),
            (
                "http://h:port",
                "parse \"http://h:port\": invalid port \":port\" after host",
            ),
            (
                "http://[::1:1",
                "parse \"http://[::1:1\": missing ']' in host",
            ),
            (
                "127.0.0.1:1",
                "parse \"127.0.0.1:1\": first path segment in URL cannot contain colon",
            ),
            (":1", "parse \":1\": missing protocol scheme"),
        ] {
            assert_eq!(parse(url).unwrap_err().to_string(), problem);
        }
    }

    #[test]
    fn peer_urls_are_trimmed_lowered_and_sorted() {
        let urls = parse_all(["unix://b", " HTTP://[::1]:1 "]).unwrap();
        assert_eq!(urls, ["http://[::1]:1", "unix://b"]);
    }
}
