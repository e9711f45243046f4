//! The ids of members and clusters, computed exactly as etcd computes them.
//!
//! Every member computes the ids of all initial members by itself, so all must get the same
//! result, Go members included.

use bytes::Bytes;
use portunus_gates::cluster::MemberId;
use portunus_proto::{ClusterId, etcdserverpb::Metadata, raftpb};
use prost::Message as _;
use serde::Serialize;
use sha1::{Digest as _, Sha1};

/// The owner of a log, in its first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The id of the member.
    pub member_id: MemberId,
    /// The id of its cluster.
    pub cluster_id: ClusterId,
}

impl Identity {
    pub(super) fn encode(self) -> Bytes {
        let metadata = Metadata {
            node_id: self.member_id.0,
            cluster_id: self.cluster_id.0,
        };
        metadata.encode_to_vec().into()
    }

    pub(super) fn decode(metadata: &Bytes) -> Option<Self> {
        let metadata = Metadata::decode(metadata.clone()).ok()?;
        // Raft has no member 0.
        (metadata.node_id != 0).then_some(Self {
            member_id: MemberId(metadata.node_id),
            cluster_id: ClusterId(metadata.cluster_id),
        })
    }
}

/// A founder of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialMember {
    /// The name of the member.
    pub name: String,
    /// The URLs at which its peers reach it.
    pub peer_urls: Vec<String>,
}

/// Returns the id of a founder.
#[must_use]
pub fn member_id(peer_urls: &[String], cluster_token: &str) -> u64 {
    first_eight_bytes(&[
        sorted(peer_urls).concat().as_bytes(),
        cluster_token.as_bytes(),
    ])
}

/// Returns the id of a member that is added at this time.
#[must_use]
pub fn added_member_id(peer_urls: &[String], unix_seconds: u64) -> u64 {
    let time = unix_seconds.to_string();
    first_eight_bytes(&[sorted(peer_urls).concat().as_bytes(), time.as_bytes()])
}

/// Returns the id of the cluster that starts with these members.
#[must_use]
pub fn cluster_id(member_ids: &[u64]) -> u64 {
    let mut member_ids = member_ids.to_vec();
    member_ids.sort_unstable();
    let bytes: Vec<u8> = member_ids.iter().flat_map(|id| id.to_be_bytes()).collect();
    first_eight_bytes(&[&bytes])
}

/// Returns the membership change that adds a founder to the log.
pub(super) fn initial_member_change(id: u64, member: &InitialMember) -> raftpb::ConfChange {
    #[derive(Serialize)]
    struct Context<'a> {
        id: u64,
        #[serde(rename = "peerURLs")]
        peer_urls: Vec<&'a str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        name: &'a str,
    }
    let context = Context {
        id,
        peer_urls: sorted(&member.peer_urls),
        name: &member.name,
    };
    // Numbers and strings always serialize.
    #[allow(clippy::expect_used)]
    let json = serde_json::to_string(&context).expect("the context of a founder serializes");
    raftpb::ConfChange {
        r#type: raftpb::ConfChangeType::ConfChangeAddNode.into(),
        node_id: id,
        context: as_go_escapes(&json).into(),
        ..Default::default()
    }
}

/// Escapes the characters that Go escapes for JSON inside HTML. They occur in strings only.
fn as_go_escapes(json: &str) -> String {
    json.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn sorted(urls: &[String]) -> Vec<&str> {
    let mut urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    urls.sort_unstable();
    urls
}

fn first_eight_bytes(parts: &[&[u8]]) -> u64 {
    let mut hasher = Sha1::new();
    for part in parts {
        hasher.update(part);
    }
    let digest = hasher.finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |id, byte| id << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(urls: &[&str]) -> Vec<String> {
        urls.iter().map(|url| (*url).to_owned()).collect()
    }

    #[test]
    fn member_and_cluster_ids_equal_etcd() {
        let default = member_id(&urls(&["http://localhost:2380"]), "etcd-cluster");
        assert_eq!(format!("{default:x}"), "8e9e05c52164694d");
        assert_eq!(format!("{:x}", cluster_id(&[default])), "cdf818194e3a8c32");

        let one = urls(&["http://10.0.0.8:2379"]);
        assert_eq!(member_id(&one, ""), 14_544_069_596_553_697_298);
        assert_eq!(
            added_member_id(&one, 472_662_245),
            2_448_790_162_483_548_276
        );
    }

    #[test]
    fn ids_are_independent_of_the_order_of_urls_and_members() {
        let there = urls(&["http://10.0.0.1:2379", "http://10.0.0.2:2379"]);
        let back = urls(&["http://10.0.0.2:2379", "http://10.0.0.1:2379"]);
        assert_eq!(member_id(&there, ""), 16_552_244_735_972_308_939);
        assert_eq!(member_id(&back, ""), member_id(&there, ""));
        assert_eq!(cluster_id(&[1, 2, 3]), cluster_id(&[3, 1, 2]));
    }

    #[test]
    fn initial_member_change_equals_etcd_bytes() {
        let member = InitialMember {
            name: "a<b".to_owned(),
            peer_urls: urls(&["http://b:2380", "http://a:2380"]),
        };
        let change = initial_member_change(7, &member);
        assert_eq!(
            change.context,
            r#"{"id":7,"peerURLs":["http://a:2380","http://b:2380"],"name":"a\u003cb"}"#
        );
        assert_eq!(change.node_id, 7);
    }

    #[test]
    fn log_metadata_equals_etcd_bytes() {
        let identity = Identity {
            member_id: MemberId(1),
            cluster_id: ClusterId(0x80),
        };
        assert_eq!(identity.encode(), [0x08, 1, 0x10, 0x80, 1].as_slice());
        assert_eq!(Identity::decode(&identity.encode()), Some(identity));
        assert_eq!(Identity::decode(&Bytes::new()), None);
        assert_eq!(Identity::decode(&Bytes::from_static(&[0xff])), None);
    }
}
