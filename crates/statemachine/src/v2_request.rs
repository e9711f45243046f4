//! Requests of the v2 store in the log.
//!
//! A member of etcd 3.5 publishes its name and client URLs, and the leader of such members the
//! cluster version, with a request of the v2 store, bare where others have an
//! [`InternalRaftRequest`]. These two are translated here; there is no v2 store, so
//! everything else stops the member. This program writes no such request.

use bytes::Bytes;
use portunus_proto::etcdserverpb::{InternalRaftRequest, Request, RequestHeader};
use portunus_proto::lenient::decode_raft_request;
use portunus_proto::membershippb::{
    Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest,
};
use prost::Message;
use serde::Deserialize;

use crate::entry_error::EntryError;

const PUT: &str = "PUT";
const VERSION_PATH: &str = "/0/version";
const MEMBERS_PATH: &str = "/0/members/";
const ATTRIBUTES_NAME: &str = "/attributes";
/// The longest member id, in hex digits.
const HEX_DIGITS_MAX: usize = 16;

/// Decodes the data of an entry of either form.
///
/// A v2 request never decodes as the other form, which has messages in the fields where the
/// v2 request has text.
pub fn read(index: u64, data: Bytes) -> Result<InternalRaftRequest, EntryError> {
    let request = match InternalRaftRequest::decode(data.clone()) {
        Ok(request) => request,
        Err(source) => match Request::decode(data.clone()) {
            Ok(v2) if !v2.method.is_empty() => return translated(index, &v2),
            _ => decode_raft_request(data).map_err(|_| EntryError::Decode { index, source })?,
        },
    };
    match &request.v2 {
        None => Ok(request),
        // Before 3.0 had a header; the id is in the v2 request as well.
        Some(v2) => translated(index, v2),
    }
}

/// A member's published attributes in the JSON of the v2 store.
#[derive(Deserialize)]
struct StoredAttributes {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "clientURLs")]
    client_urls: Option<Vec<String>>,
}

fn translated(index: u64, v2: &Request) -> Result<InternalRaftRequest, EntryError> {
    let unsupported = |what| EntryError::Unsupported { index, what };
    let request = InternalRaftRequest {
        header: Some(RequestHeader {
            id: v2.id,
            ..RequestHeader::default()
        }),
        ..InternalRaftRequest::default()
    };
    if v2.method != PUT {
        return Err(unsupported("a change of the v2 store"));
    }
    if v2.path == VERSION_PATH {
        return Ok(InternalRaftRequest {
            cluster_version_set: Some(ClusterVersionSetRequest {
                ver: v2.val.clone(),
                ..ClusterVersionSetRequest::default()
            }),
            ..request
        });
    }
    let member_id = member_of(&v2.path).ok_or(unsupported("a change of the v2 store"))?;
    let attributes: StoredAttributes = serde_json::from_str(&v2.val)
        .map_err(|_| unsupported("attributes of a member that cannot be read"))?;
    Ok(InternalRaftRequest {
        cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
            member_id,
            member_attributes: Some(Attributes {
                name: attributes.name,
                client_urls: attributes.client_urls.unwrap_or_default(),
                ..Attributes::default()
            }),
        }),
        ..request
    })
}

/// The member whose attributes are at this path.
fn member_of(path: &str) -> Option<u64> {
    let id = path.strip_prefix(MEMBERS_PATH)?;
    let id = id.strip_suffix(ATTRIBUTES_NAME)?;
    let is_hex = id.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_hex && id.len() <= HEX_DIGITS_MAX)
        .then(|| u64::from_str_radix(id, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_proto::etcdserverpb::PutRequest;

    /// A request as Go writes it: every field but the optional two, zero or not.
    fn written_by_go(id: u8, method: &str, path: &str, value: &str) -> Bytes {
        let mut data = vec![0x08, id];
        for (tag, text) in [(0x12, method), (0x1a, path), (0x22, value)] {
            data.extend([tag, u8::try_from(text.len()).unwrap()]);
            data.extend(text.as_bytes());
        }
        // Dir, PrevValue, PrevIndex.
        data.extend([0x28, 0, 0x32, 0, 0x38, 0]);
        // Expiration to Time, one byte of tag each; then Stream, with two.
        for tag in [0x48, 0x50, 0x58, 0x60, 0x68, 0x70, 0x78] {
            data.extend([tag, 0]);
        }
        data.extend([0x80, 0x01, 0]);
        Bytes::from(data)
    }

    fn fault(data: Bytes) -> String {
        read(7, data).unwrap_err().to_string()
    }

    #[test]
    fn attributes_of_a_3_5_member_are_decoded() {
        let value = r#"{"name":"m1","clientURLs":["http://a:2379","http://b:2379"]}"#;
        let path = "/0/members/8e9e05c52164694d/attributes";
        let request = read(7, written_by_go(9, "PUT", path, value)).unwrap();
        assert_eq!(request.header.as_ref().unwrap().id, 9);
        let set = request.cluster_member_attr_set.unwrap();
        assert_eq!(set.member_id, 0x8e9e_05c5_2164_694d);
        let attributes = set.member_attributes.unwrap();
        assert_eq!(attributes.name, "m1");
        assert_eq!(attributes.client_urls, ["http://a:2379", "http://b:2379"]);
        assert_eq!(attributes.proposed_cluster_params, None);
        let bare = read(7, written_by_go(9, "PUT", path, r#"{"clientURLs":null}"#)).unwrap();
        let set = bare.cluster_member_attr_set.unwrap();
        assert_eq!(set.member_attributes, Some(Attributes::default()));
    }

    #[test]
    fn cluster_version_of_3_5_is_decoded() {
        let request = read(7, written_by_go(9, "PUT", "/0/version", "3.5.0")).unwrap();
        assert_eq!(request.cluster_version_set.unwrap().ver, "3.5.0");
        assert_eq!(request.cluster_member_attr_set, None);
    }

    #[test]
    fn v2_request_inside_a_raft_request_is_decoded() {
        let v2 = Request::decode(written_by_go(9, "PUT", "/0/version", "3.5.0")).unwrap();
        let request = InternalRaftRequest {
            v2: Some(v2),
            ..InternalRaftRequest::default()
        };
        let data = Bytes::from(request.encode_to_vec());
        let request = read(7, data).unwrap();
        assert_eq!(request.header.unwrap().id, 9);
        assert_eq!(request.cluster_version_set.unwrap().ver, "3.5.0");
    }

    #[test]
    fn other_v2_request_stops_the_member_with_its_index() {
        for (method, path, value) in [
            ("PUT", "/1/some/key", "value"),
            ("PUT", "/0/version/", "3.5.0"),
            ("PUT", "/0/members/attributes", "{}"),
            ("PUT", "/0/members//attributes", "{}"),
            ("PUT", "/0/members/xyz/attributes", "{}"),
            ("PUT", "/0/members/+1/attributes", "{}"),
            ("PUT", "/0/members/10000000000000000/attributes", "{}"),
            ("PUT", "/0/members/1/raftAttributes", "{}"),
            ("PUT", "/0/members/1/attributes", "no JSON"),
            ("POST", "/0/version", "3.5.0"),
            ("DELETE", "/0/members/1/attributes", ""),
            ("SYNC", "", ""),
        ] {
            let text = fault(written_by_go(9, method, path, value));
            assert!(text.contains("entry 7 of the log asks for"), "{text}");
        }
    }

    #[test]
    fn raft_request_is_no_v2_request_and_malformed_bytes_are_neither() {
        let put = InternalRaftRequest {
            header: Some(RequestHeader {
                id: 3,
                ..RequestHeader::default()
            }),
            put: Some(PutRequest {
                key: "a".into(),
                ..PutRequest::default()
            }),
            ..InternalRaftRequest::default()
        };
        let data = Bytes::from(put.encode_to_vec());
        assert_eq!(read(7, data.clone()).unwrap(), put);
        let torn = data.slice(..data.len() - 1);
        assert!(fault(torn).contains("cannot be decoded"));
        assert!(fault(Bytes::from_static(&[0xff])).contains("cannot be decoded"));
        // A field that is not known, with what the strict decoder refuses.
        let mut odd = data.to_vec();
        odd.extend([0xd3, 0x3e, 0xdc, 0x3e]);
        assert_eq!(read(7, Bytes::from(odd)).unwrap(), put);
    }
}
