//! The addresses of a peer and the choice among them.

use std::sync::Mutex;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use thiserror::Error;

use crate::sync::lock;

/// An address that is not a peer URL.
#[derive(Debug, Error)]
#[error("{url:?} is not a peer address: write it as http://host:port or https://host:port")]
pub(crate) struct BadUrl {
    url: String,
}

/// One address, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
}

impl BaseUrl {
    /// Parses `http://host:port` or `https://host:port`.
    pub fn parse(text: &str) -> Result<BaseUrl, BadUrl> {
        let bad = || BadUrl {
            url: text.chars().take(200).collect(),
        };
        let uri: Uri = text.trim().parse().map_err(|_| bad())?;
        let no_path = uri.path_and_query().is_none_or(|path| path == "/");
        let parts = uri.into_parts();
        match (parts.scheme, parts.authority) {
            (Some(scheme), Some(authority))
                if no_path
                    && (scheme == Scheme::HTTP || scheme == Scheme::HTTPS)
                    && authority.port_u16().is_some() =>
            {
                Ok(BaseUrl { scheme, authority })
            }
            _ => Err(bad()),
        }
    }

    /// Returns this address with a path.
    pub fn join(&self, path: &PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path.clone());
        // Never fails: all three parts are set.
        Uri::from_parts(parts).unwrap_or_default()
    }
}

/// The addresses of one peer. Its tasks share the choice of the current one.
#[derive(Debug)]
pub(crate) struct Urls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    urls: Vec<BaseUrl>,
    picked: usize,
}

impl Urls {
    pub fn new(urls: Vec<BaseUrl>) -> Urls {
        Urls {
            state: Mutex::new(State { urls, picked: 0 }),
        }
    }

    pub fn replace(&self, urls: Vec<BaseUrl>) {
        *lock(&self.state) = State { urls, picked: 0 };
    }

    /// Returns the current address.
    pub fn pick(&self) -> Option<BaseUrl> {
        let state = lock(&self.state);
        state.urls.get(state.picked).cloned()
    }

    /// Selects the next address after `url` failed, if `url` is still the current one.
    pub fn failed(&self, url: &BaseUrl) {
        let mut state = lock(&self.state);
        if state.urls.get(state.picked) == Some(url) {
            state.picked = (state.picked + 1) % state.urls.len();
        }
    }
}

/// Parses addresses; returns the valid ones and an error for each other one.
pub(crate) fn parse_all<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> (Vec<BaseUrl>, Vec<BadUrl>) {
    let mut urls = Vec::new();
    let mut bad = Vec::new();
    for text in texts {
        match BaseUrl::parse(text) {
            Ok(url) => urls.push(url),
            Err(error) => bad.push(error),
        }
    }
    (urls, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> BaseUrl {
        BaseUrl::parse(text).unwrap()
    }

    #[test]
    fn address_has_scheme_host_and_port() {
        let path = PathAndQuery::from_static("/raft/probing");
        let joined = url("http://[::1]:2380").join(&path);
        assert_eq!(joined.to_string(), "http://[::1]:2380/raft/probing");
        assert_eq!(url(" http://a:1/ "), url("http://a:1"));
        for bad in [
            "",
            "a:1",
            "http://a",
            "ftp://a:1",
            "http://a:1/path",
            "http://",
        ] {
            assert!(BaseUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn failed_address_is_replaced_by_the_next_only_once() {
        let (a, b) = (url("http://a:1"), url("http://b:1"));
        let urls = Urls::new(vec![a.clone(), b.clone()]);
        assert_eq!(urls.pick(), Some(a.clone()));
        urls.failed(&a);
        // A second task reports the same address late.
        urls.failed(&a);
        assert_eq!(urls.pick(), Some(b.clone()));
        urls.failed(&b);
        assert_eq!(urls.pick(), Some(a));
        urls.replace(Vec::new());
        urls.failed(&b);
        assert_eq!(urls.pick(), None);
    }
}
