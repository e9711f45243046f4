//! The headers that identify a member: writing and checking them.
//!
//! The texts of refusals are part of the protocol: a Go member parses them.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use portunus_gates::MajorMinor;
use thiserror::Error;

use crate::config::LocalMember;

pub(crate) const SERVER_FROM: HeaderName = HeaderName::from_static("x-server-from");
pub(crate) const SERVER_VERSION: HeaderName = HeaderName::from_static("x-server-version");
pub(crate) const MIN_CLUSTER_VERSION: HeaderName = HeaderName::from_static("x-min-cluster-version");
pub(crate) const CLUSTER_ID: HeaderName = HeaderName::from_static("x-etcd-cluster-id");
pub(crate) const PEER_URLS: HeaderName = HeaderName::from_static("x-peerurls");
pub(crate) const RAFT_TO: HeaderName = HeaderName::from_static("x-raft-to");

/// The version assumed for a member that sends no version header.
const VERSION_WITHOUT_HEADER: MajorMinor = MajorMinor::literal("2.0");
/// The first version with both streams.
const FIRST_WITH_STREAMS: MajorMinor = MajorMinor::literal("2.1");

/// Formats an id as etcd does: hexadecimal, lower case, no padding.
pub(crate) fn hex(id: u64) -> String {
    format!("{id:x}")
}

/// Parses a hexadecimal id.
pub(crate) fn parse_hex(text: &str) -> Option<u64> {
    // from_str_radix also accepts a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits {
        u64::from_str_radix(text, 16).ok()
    } else {
        None
    }
}

/// Why a request is answered 412; the texts are etcd's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Incompatible {
    #[error("incompatible version")]
    Version,
    #[error("cluster ID mismatch")]
    Cluster,
    #[error("to field mismatch")]
    To,
}

/// This member's ids and versions, for checks and as header values.
pub(crate) struct Identity {
    pub member_id: u64,
    member_hex: HeaderValue,
    cluster_hex: HeaderValue,
    version_text: HeaderValue,
    version: MajorMinor,
    min_cluster_version: MajorMinor,
    request: HeaderMap,
}

impl Identity {
    /// Precomputes the headers. A version that cannot be parsed is sent unchanged and
    /// compares as the oldest version, so that peers refuse this member at once.
    pub fn new(local: &LocalMember) -> Identity {
        let text = |text: &str| {
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
        };
        let version = |text: &str| text.parse().unwrap_or(VERSION_WITHOUT_HEADER);
        let mut request = HeaderMap::new();
        let member_hex = text(&hex(local.member_id));
        let cluster_hex = text(&hex(local.cluster_id));
        let version_text = text(&local.version);
        request.insert(SERVER_FROM, member_hex.clone());
        request.insert(SERVER_VERSION, version_text.clone());
        request.insert(MIN_CLUSTER_VERSION, text(&local.min_cluster_version));
        request.insert(CLUSTER_ID, cluster_hex.clone());
        if !local.peer_urls.is_empty() {
            request.insert(PEER_URLS, text(&local.peer_urls.join(",")));
        }
        Identity {
            member_id: local.member_id,
            member_hex,
            cluster_hex,
            version_text,
            version: version(&local.version),
            min_cluster_version: version(&local.min_cluster_version),
            request,
        }
    }

    /// Returns the headers of every request to a peer.
    pub fn request_headers(&self) -> HeaderMap {
        self.request.clone()
    }

    /// Adds the cluster ID, and for streams the server version, to the headers of an answer.
    pub fn add_response_headers(&self, headers: &mut HeaderMap, of_stream: bool) {
        headers.insert(CLUSTER_ID, self.cluster_hex.clone());
        if of_stream {
            headers.insert(SERVER_VERSION, self.version_text.clone());
        }
    }

    /// Checks that a request comes from a compatible member of this cluster.
    pub fn check_request(&self, headers: &HeaderMap) -> Result<(), Incompatible> {
        let version = version_in(headers, &SERVER_VERSION).ok_or(Incompatible::Version)?;
        let min_version = version_in(headers, &MIN_CLUSTER_VERSION).ok_or(Incompatible::Version)?;
        if version < self.min_cluster_version || min_version > self.version {
            return Err(Incompatible::Version);
        }
        if headers.get(CLUSTER_ID) != Some(&self.cluster_hex) {
            return Err(Incompatible::Cluster);
        }
        Ok(())
    }

    /// Checks that a stream request is addressed to this member.
    pub fn check_target(&self, headers: &HeaderMap) -> Result<(), Incompatible> {
        if headers.get(RAFT_TO) == Some(&self.member_hex) {
            Ok(())
        } else {
            Err(Incompatible::To)
        }
    }

    /// Returns whether the version of the member that answered supports streams.
    pub fn answer_supports_streams(&self, headers: &HeaderMap) -> bool {
        version_in(headers, &SERVER_VERSION)
            .is_some_and(|version| version >= FIRST_WITH_STREAMS || version >= self.version)
    }
}

fn version_in(headers: &HeaderMap, name: &HeaderName) -> Option<MajorMinor> {
    match headers.get(name) {
        None => Some(VERSION_WITHOUT_HEADER),
        Some(value) if value.is_empty() => Some(VERSION_WITHOUT_HEADER),
        Some(value) => value.to_str().ok()?.parse().ok(),
    }
}

/// Returns the sender's id and peer URLs as stated in the request.
pub(crate) fn sender(headers: &HeaderMap) -> Option<(u64, &str)> {
    let id = parse_hex(headers.get(SERVER_FROM)?.to_str().ok()?)?;
    let urls = headers.get(PEER_URLS)?.to_str().ok()?;
    (!urls.is_empty()).then_some((id, urls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity::new(&LocalMember {
            member_id: 0x00ab,
            cluster_id: 0x0cdf,
            version: "3.8.0".into(),
            min_cluster_version: "3.0.0".into(),
            peer_urls: vec!["http://a:1".into(), "http://b:1".into()],
        })
    }

    fn with(name: HeaderName, value: Option<&'static str>) -> HeaderMap {
        let mut headers = identity().request_headers();
        match value {
            Some(value) => headers.insert(name, HeaderValue::from_static(value)),
            None => headers.remove(name),
        };
        headers
    }

    #[test]
    fn request_headers_identify_the_sender() {
        let headers = identity().request_headers();
        assert_eq!(headers[SERVER_FROM], "ab");
        assert_eq!(headers[CLUSTER_ID], "cdf");
        assert_eq!(headers[SERVER_VERSION], "3.8.0");
        assert_eq!(headers[MIN_CLUSTER_VERSION], "3.0.0");
        assert_eq!(headers[PEER_URLS], "http://a:1,http://b:1");
        assert_eq!(sender(&headers), Some((0xab, "http://a:1,http://b:1")));
    }

    #[test]
    fn versions_are_compared_by_major_and_minor() {
        let cases = [
            (SERVER_VERSION, Some("3.8.0"), true),
            (SERVER_VERSION, Some("3.8.0-alpha.0"), true),
            (SERVER_VERSION, Some("3.9.1"), true),
            (SERVER_VERSION, Some("3.0.0"), true),
            (SERVER_VERSION, Some("2.3.8"), false),
            (SERVER_VERSION, None, false),
            (SERVER_VERSION, Some(""), false),
            (SERVER_VERSION, Some("newest"), false),
            (MIN_CLUSTER_VERSION, Some("3.8.9"), true),
            (MIN_CLUSTER_VERSION, Some("3.9.0"), false),
            (MIN_CLUSTER_VERSION, None, true),
            (MIN_CLUSTER_VERSION, Some("?"), false),
        ];
        for (name, value, fits) in cases {
            let result = identity().check_request(&with(name.clone(), value));
            let expected = if fits {
                Ok(())
            } else {
                Err(Incompatible::Version)
            };
            assert_eq!(result, expected, "{name}: {value:?}");
        }
    }

    #[test]
    fn request_of_another_cluster_is_refused() {
        for value in [Some("cde"), Some("0cdf"), None] {
            let result = identity().check_request(&with(CLUSTER_ID, value));
            assert_eq!(result, Err(Incompatible::Cluster), "{value:?}");
        }
    }

    #[test]
    fn stream_for_another_member_is_refused() {
        let identity = identity();
        assert_eq!(identity.check_target(&with(RAFT_TO, Some("ab"))), Ok(()));
        for value in [Some("ac"), None] {
            let result = identity.check_target(&with(RAFT_TO, value));
            assert_eq!(result, Err(Incompatible::To));
        }
    }

    #[test]
    fn only_versions_before_21_have_no_streams() {
        let identity = identity();
        for (value, knows) in [
            (Some("2.1.0"), true),
            (Some("3.6.14"), true),
            (Some("9.0.0"), true),
            (None, false),
            (Some("2.0.13"), false),
            (Some("-"), false),
        ] {
            let headers = with(SERVER_VERSION, value);
            assert_eq!(
                identity.answer_supports_streams(&headers),
                knows,
                "{value:?}"
            );
        }
    }

    #[test]
    fn ids_are_hexadecimal_without_prefix_or_sign() {
        assert_eq!(parse_hex("8e9e05c52164694d"), Some(0x8e9e_05c5_2164_694d));
        assert_eq!(parse_hex("00AB"), Some(0xab));
        for bad in ["", "+1", "-1", "0x1", "g", "10000000000000000"] {
            assert_eq!(parse_hex(bad), None, "{bad}");
        }
    }
}
