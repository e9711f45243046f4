//! Users that a front proxy authenticated, by the headers that it adds.
//!
//! An aggregating kube-apiserver presents its own client certificate and names the user in
//! headers. Everybody can send such headers; they count only on a connection whose certificate
//! chains to the front proxy's CA and has an allowed name. From all other requests they are
//! removed, and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use portunus_tls::ClientCa;
use prometheus::IntCounter;

use super::{Authenticator, Unauthenticated};
use crate::identity::{ANONYMOUS, Connection, Identity};

/// The names of the headers, in lower case. Of several headers for one value, the first that a
/// request has counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontProxyHeaders {
    /// `--requestheader-username-headers`
    pub user: Vec<HeaderName>,
    /// `--requestheader-uid-headers`
    pub uid: Vec<HeaderName>,
    /// `--requestheader-group-headers`
    pub group: Vec<HeaderName>,
    /// `--requestheader-extra-headers-prefix`, in lower case
    pub extra_prefixes: Vec<String>,
}

impl Default for FrontProxyHeaders {
    fn default() -> FrontProxyHeaders {
        FrontProxyHeaders {
            user: vec![HeaderName::from_static("x-remote-user")],
            uid: vec![HeaderName::from_static("x-remote-uid")],
            group: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }
}

/// The certificates of front proxies.
#[derive(Debug, Clone)]
pub struct FrontProxyTrust {
    /// `--requestheader-client-ca-file`
    pub ca: Arc<ClientCa>,
    /// `--requestheader-allowed-names`: the common names; empty for any.
    pub allowed_names: Vec<String>,
}

/// Reads the headers of front proxies, and removes those of everybody else.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    trust: Option<FrontProxyTrust>,
    headers: FrontProxyHeaders,
    untrusted: IntCounter,
}

impl FrontProxy {
    /// Creates the authenticator. Without trusted certificates it only removes the headers.
    /// `untrusted` counts requests whose headers were removed without being read.
    #[must_use]
    pub fn new(
        trust: Option<FrontProxyTrust>,
        headers: FrontProxyHeaders,
        untrusted: IntCounter,
    ) -> FrontProxy {
        FrontProxy {
            trust,
            headers,
            untrusted,
        }
    }

    /// Returns whether the connection is one of a front proxy.
    fn check(&self, connection: &Connection) -> Result<bool, Unauthenticated> {
        let Some(trust) = &self.trust else {
            return Ok(false);
        };
        if connection.certificates.is_empty() {
            return Ok(false);
        }
        let refused = |reason: String| Unauthenticated { reason };
        let verified = trust.ca.verify(&connection.certificates);
        let verified = verified.map_err(|error| refused(format!("not a front proxy: {error}")))?;
        let names = &trust.allowed_names;
        match names.is_empty() || names.contains(&verified.common_name) {
            true => Ok(true),
            false => Err(refused(format!(
                "not a front proxy: the common name {:?} is not in --requestheader-allowed-names",
                verified.common_name
            ))),
        }
    }
}

impl Authenticator for FrontProxy {
    fn authenticate(
        &self,
        headers: &mut HeaderMap,
        connection: &Connection,
    ) -> Result<Option<Identity>, Unauthenticated> {
        // Most requests have none of the headers, and need no verification then.
        let Some(claimed) = self.headers.take(headers) else {
            return Ok(None);
        };
        let checked = self.check(connection);
        if checked != Ok(true) {
            self.untrusted.inc();
        }
        match checked? {
            true => Ok(claimed.identity()),
            false => Ok(None),
        }
    }
}

/// What the headers of a request claim.
struct Claimed {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Claimed {
    fn identity(self) -> Option<Identity> {
        if self.user.is_empty() {
            return None;
        }
        let mut identity = match self.user == ANONYMOUS {
            true => Identity {
                user: self.user,
                groups: self.groups,
                ..Identity::default()
            },
            false => Identity::new(self.user, self.groups),
        };
        identity.uid = self.uid;
        identity.extra = self.extra;
        Some(identity)
    }
}

impl FrontProxyHeaders {
    /// Removes the headers. Returns what they claim; none if there were none.
    fn take(&self, headers: &mut HeaderMap) -> Option<Claimed> {
        let own = |name: &HeaderName| {
            let plain = [&self.user, &self.uid, &self.group];
            plain.iter().any(|names| names.contains(name)) || self.extra_key(name).is_some()
        };
        let found: Vec<HeaderName> = headers.keys().filter(|name| own(name)).cloned().collect();
        if found.is_empty() {
            return None;
        }
        let first = |names: &[HeaderName]| {
            let mut values = names
                .iter()
                .filter_map(|name| headers.get(name)?.to_str().ok());
            values
                .find(|value| !value.is_empty())
                .unwrap_or_default()
                .to_owned()
        };
        let all = |name: &HeaderName| {
            let values = headers.get_all(name).iter();
            let values = values.filter_map(|value| value.to_str().ok());
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in &found {
            if let Some(key) = self.extra_key(name) {
                extra.entry(key).or_default().extend(all(name));
            }
        }
        let claimed = Claimed {
            user: first(&self.user),
            uid: first(&self.uid),
            groups: self.group.iter().flat_map(all).collect(),
            extra,
        };
        for name in &found {
            headers.remove(name);
        }
        Some(claimed)
    }

    /// Returns the name of an attribute: the decoded rest of a header after a prefix.
    fn extra_key(&self, name: &HeaderName) -> Option<String> {
        let mut prefixes = self.extra_prefixes.iter();
        let key = prefixes.find_map(|prefix| name.as_str().strip_prefix(prefix.as_str()))?;
        let decoded = percent_decode_str(key).decode_utf8();
        Some(decoded.map_or_else(|_| key.to_owned(), |key| key.to_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn take(pairs: &[(&'static str, &'static str)]) -> (Option<Identity>, usize) {
        let mut headers = headers(pairs);
        let claimed = FrontProxyHeaders::default().take(&mut headers);
        (claimed.and_then(Claimed::identity), headers.len())
    }

    #[test]
    fn headers_name_user_groups_and_attributes() {
        let (identity, rest) = take(&[
            ("x-remote-user", "alice"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "admins"),
            ("x-remote-group", "readers"),
            ("x-remote-extra-scopes", "a"),
            ("x-remote-extra-scopes", "b"),
            ("x-remote-extra-acme.com%2fproject", "p"),
            ("accept", "application/json"),
        ]);
        let identity = identity.unwrap();
        assert_eq!((&*identity.user, &*identity.uid), ("alice", "7"));
        assert_eq!(
            identity.groups,
            ["admins", "readers", "system:authenticated"]
        );
        assert_eq!(identity.extra["scopes"], ["a", "b"]);
        assert_eq!(identity.extra["acme.com/project"], ["p"]);
        assert_eq!(rest, 1, "only the other header stays");
    }

    #[test]
    fn headers_without_a_user_name_nobody_and_are_removed() {
        let (identity, rest) = take(&[("x-remote-group", "system:masters")]);
        assert_eq!((identity, rest), (None, 0));
        assert_eq!(take(&[("accept", "x")]), (None, 1));
    }

    #[test]
    fn forwarded_anonymous_user_is_not_authenticated() {
        let (identity, _) = take(&[
            ("x-remote-user", ANONYMOUS),
            ("x-remote-group", "system:unauthenticated"),
        ]);
        assert_eq!(identity.unwrap(), Identity::anonymous());
    }

    #[test]
    fn headers_are_removed_and_counted_without_a_trusted_proxy() {
        let counter = IntCounter::new("untrusted", "untrusted").unwrap();
        let proxy = FrontProxy::new(None, FrontProxyHeaders::default(), counter.clone());
        let mut spoofed = headers(&[
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
        ]);
        let found = proxy.authenticate(&mut spoofed, &Connection::default());
        assert_eq!(found, Ok(None));
        assert!(spoofed.is_empty());
        assert_eq!(counter.get(), 1);
        assert_eq!(
            proxy.authenticate(&mut spoofed, &Connection::default()),
            Ok(None)
        );
        assert_eq!(counter.get(), 1);
    }
}
