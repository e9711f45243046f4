//! The headers of a call, encoded with HPACK.
//!
//! The first call of a method on a connection sends its headers in full and adds them to the
//! dynamic table; every later call sends a few indexes.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use crate::endpoint::Endpoint;

/// A gRPC method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads keys.
    Range,
    /// Writes one key.
    Put,
    /// Compares, then reads and writes.
    Txn,
    /// Watches; many messages both ways.
    Watch,
    /// Grants a lease.
    LeaseGrant,
    /// Renews leases; many messages both ways.
    LeaseKeepAlive,
    /// Returns the status of a member, including the leader.
    Status,
    /// Adds a member.
    MemberAdd,
    /// Lists the members.
    MemberList,
    /// Adds a role.
    RoleAdd,
    /// Grants a permission to a role.
    RoleGrantPermission,
    /// Adds a user.
    UserAdd,
    /// Grants a role to a user.
    UserGrantRole,
    /// Enables authentication.
    AuthEnable,
    /// Logs a user in.
    Authenticate,
}

const METHODS: usize = 15;
/// The headers besides the paths: the authority, the content type, `te` and the token.
const OTHER_HEADERS: usize = 4;

impl Method {
    fn path(self) -> &'static str {
        match self {
            Method::Range => "/etcdserverpb.KV/Range",
            Method::Put => "/etcdserverpb.KV/Put",
            Method::Txn => "/etcdserverpb.KV/Txn",
            Method::Watch => "/etcdserverpb.Watch/Watch",
            Method::LeaseGrant => "/etcdserverpb.Lease/LeaseGrant",
            Method::LeaseKeepAlive => "/etcdserverpb.Lease/LeaseKeepAlive",
            Method::Status => "/etcdserverpb.Maintenance/Status",
            Method::MemberAdd => "/etcdserverpb.Cluster/MemberAdd",
            Method::MemberList => "/etcdserverpb.Cluster/MemberList",
            Method::RoleAdd => "/etcdserverpb.Auth/RoleAdd",
            Method::RoleGrantPermission => "/etcdserverpb.Auth/RoleGrantPermission",
            Method::UserAdd => "/etcdserverpb.Auth/UserAdd",
            Method::UserGrantRole => "/etcdserverpb.Auth/UserGrantRole",
            Method::AuthEnable => "/etcdserverpb.Auth/AuthEnable",
            Method::Authenticate => "/etcdserverpb.Auth/Authenticate",
        }
    }

    /// Returns whether a call has many messages.
    #[must_use]
    pub fn is_streaming(self) -> bool {
        matches!(self, Method::Watch | Method::LeaseKeepAlive)
    }
}

/// Indexes in HPACK's static table.
mod known {
    pub const AUTHORITY: u8 = 1;
    pub const METHOD_POST: u8 = 3;
    pub const PATH: u8 = 4;
    pub const SCHEME_HTTP: u8 = 6;
    pub const SCHEME_HTTPS: u8 = 7;
    pub const CONTENT_TYPE: u8 = 31;
    /// The newest entry of the dynamic table.
    pub const NEWEST: usize = 62;
}

const INDEXED: u8 = 0x80;
const LITERAL_TO_BE_KEPT: u8 = 0x40;

/// Header blocks of one connection.
#[derive(Debug)]
pub(super) struct HeaderBlocks {
    authority: Arc<str>,
    token: Option<Arc<str>>,
    /// The index of the scheme.
    scheme: u8,
    /// Number of entries in the dynamic table, which never evicts one.
    entries: usize,
    /// The entries of the authority, the path of each method, the content type, the `te` header
    /// and the token, counted from the first.
    sent: [Option<usize>; METHODS + OTHER_HEADERS],
    block: BytesMut,
}

impl HeaderBlocks {
    pub fn new(endpoint: &Endpoint) -> HeaderBlocks {
        HeaderBlocks {
            authority: Arc::clone(&endpoint.address),
            token: endpoint.token.clone(),
            scheme: match endpoint.tls {
                Some(_) => known::SCHEME_HTTPS,
                None => known::SCHEME_HTTP,
            },
            entries: 0,
            sent: [None; METHODS + OTHER_HEADERS],
            block: BytesMut::with_capacity(256),
        }
    }

    /// Returns the header block of the next call of this method. The caller must send every
    /// block, in order.
    pub fn of(&mut self, method: Method) -> &[u8] {
        self.block.clear();
        self.block.put_u8(INDEXED | known::METHOD_POST);
        self.block.put_u8(INDEXED | self.scheme);
        let authority = Arc::clone(&self.authority);
        self.put_once(0, Some(known::AUTHORITY), "", &authority);
        // Pseudo-headers must come before the others.
        self.put_once(1 + method as usize, Some(known::PATH), "", method.path());
        let after_paths = 1 + METHODS;
        let content_type = "application/grpc";
        self.put_once(after_paths, Some(known::CONTENT_TYPE), "", content_type);
        self.put_once(after_paths + 1, None, "te", "trailers");
        if let Some(token) = self.token.clone() {
            self.put_once(after_paths + 2, None, "token", &token);
        }
        &self.block
    }

    /// Writes an index if the header was sent on this connection, else the header itself.
    fn put_once(&mut self, header: usize, known_name: Option<u8>, name: &str, value: &str) {
        if let Some(entry) = self.sent[header] {
            // There are at most 19 entries, so the index fits into seven bits.
            let index = known::NEWEST + self.entries - 1 - entry;
            self.block.put_u8(INDEXED | index as u8);
            return;
        }
        self.sent[header] = Some(self.entries);
        self.entries += 1;
        self.block
            .put_u8(LITERAL_TO_BE_KEPT | known_name.unwrap_or(0));
        if known_name.is_none() {
            self.put_text(name);
        }
        self.put_text(value);
    }

    /// Writes the length of a text and the text, without Huffman coding.
    fn put_text(&mut self, text: &str) {
        // An integer with a prefix of seven bits; the first bit is that of Huffman coding.
        const PREFIX_MAX: usize = 0x7f;
        if text.len() < PREFIX_MAX {
            self.block.put_u8(text.len() as u8);
        } else {
            self.block.put_u8(PREFIX_MAX as u8);
            let mut rest = text.len() - PREFIX_MAX;
            while rest >= 0x80 {
                self.block.put_u8((rest % 0x80) as u8 | 0x80);
                rest /= 0x80;
            }
            self.block.put_u8(rest as u8);
        }
        self.block.put_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::mode::Mode;

    #[test]
    fn first_call_sends_headers_and_later_calls_send_indexes() {
        let mut blocks = HeaderBlocks::new(&Endpoint::plain("127.0.0.1:1"));
        let first = blocks.of(Method::Put).to_vec();
        let text = String::from_utf8_lossy(&first).into_owned();
        for part in ["127.0.0.1:1", "application/grpc", "trailers", "KV/Put"] {
            assert!(text.contains(part), "{part} in {text:?}");
        }
        // Four entries: the newest, 62, is `te`, and 65 the authority.
        assert_eq!(blocks.of(Method::Put), [0x83, 0x86, 193, 192, 191, 190]);
    }

    #[test]
    fn another_method_adds_its_path_and_shifts_the_indexes() {
        let mut blocks = HeaderBlocks::new(&Endpoint::plain("127.0.0.1:1"));
        blocks.of(Method::Put);
        let second = blocks.of(Method::Range).to_vec();
        assert!(second.starts_with(&[0x83, 0x86, 193, 0x44]));
        assert!(second.ends_with(&[192, 191]));
        assert_eq!(blocks.of(Method::Put), [0x83, 0x86, 194, 193, 192, 191]);
        assert_eq!(blocks.of(Method::Range), [0x83, 0x86, 194, 190, 192, 191]);
    }

    fn blocks_with_token(token: &str) -> HeaderBlocks {
        HeaderBlocks::new(&Endpoint {
            token: Some(token.into()),
            ..Endpoint::plain("127.0.0.1:1")
        })
    }

    #[test]
    fn token_is_sent_once_and_then_by_index() {
        let mut blocks = blocks_with_token("abc.7");
        let first = blocks.of(Method::Put).to_vec();
        assert!(first.ends_with(b"\x40\x05token\x05abc.7"), "{first:?}");
        // Five entries: the newest, 62, is the token, and 66 the authority.
        let second = blocks.of(Method::Put);
        assert_eq!(second, [0x83, 0x86, 194, 193, 192, 191, 190]);
    }

    #[test]
    fn scheme_is_https_with_tls() {
        let access = Access::new(Mode {
            auth: false,
            tls: true,
        });
        let mut blocks = HeaderBlocks::new(&Endpoint {
            tls: access.unwrap().client_tls(),
            ..Endpoint::plain("127.0.0.1:1")
        });
        assert!(blocks.of(Method::Put).starts_with(&[0x83, 0x87]));
    }

    #[test]
    fn length_of_a_long_token_takes_several_bytes() {
        for (length, encoded) in [
            (126, &[126][..]),
            (127, &[127, 0]),
            (254, &[127, 127]),
            (255, &[127, 0x80, 1]),
            (1337, &[127, 0xba, 9]),
        ] {
            let token = "t".repeat(length);
            let expected = [b"\x40\x05token", encoded, token.as_bytes()].concat();
            let mut blocks = blocks_with_token(&token);
            assert!(blocks.of(Method::Put).ends_with(&expected), "{length}");
        }
    }
}
