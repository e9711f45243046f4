//! The encoding of single messages.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use portunus_proto::{
    etcdserverpb::{InternalRaftRequest, Metadata, Request, RequestHeader},
    membershippb::{Attributes, ClusterParams, ClusterVersionSetRequest, Feature},
    mvccpb::KeyValue,
    raftpb::{ConfState, Entry, HardState, Message as RaftMessage},
};
use prost::Message;

/// First tag of an encoding: field number and wire type.
fn first_tag(mut encoded: &[u8]) -> (u32, u8) {
    let tag = prost::encoding::decode_varint(&mut encoded).unwrap();
    ((tag >> 3) as u32, (tag & 7) as u8)
}

const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;

/// Sets one message-typed field of the request, with its expected number.
macro_rules! requests {
    ($($number:literal $field:ident),* $(,)?) => {
        [$(($number, stringify!($field), InternalRaftRequest {
            $field: Some(Default::default()),
            ..Default::default()
        })),*]
    };
}

#[test]
fn raft_request_fields_have_their_numbers_on_the_wire() {
    let table = requests![
        2 v2, 3 range, 4 put, 5 delete_range, 6 txn, 7 compaction, 8 lease_grant, 9 lease_revoke,
        10 alarm, 11 lease_checkpoint, 100 header,
        1000 auth_enable, 1011 auth_disable, 1012 authenticate, 1013 auth_status,
        1100 auth_user_add, 1101 auth_user_delete, 1102 auth_user_get,
        1103 auth_user_change_password, 1104 auth_user_grant_role, 1105 auth_user_revoke_role,
        1106 auth_user_list, 1107 auth_role_list,
        1200 auth_role_add, 1201 auth_role_delete, 1202 auth_role_get,
        1203 auth_role_grant_permission, 1204 auth_role_revoke_permission,
        1300 cluster_version_set, 1301 cluster_member_attr_set, 1302 downgrade_info_set,
        9900 downgrade_version_test,
    ];
    for (number, name, request) in &table {
        let encoded = request.encode_to_vec();
        assert_eq!(first_tag(&encoded), (*number, LENGTH_DELIMITED), "{name}");
        assert_eq!(encoded.last(), Some(&0), "{name}: present though empty");
        let decoded = InternalRaftRequest::decode(encoded.as_slice()).unwrap();
        assert_eq!(&decoded, request, "{name}");
    }
    let legacy_id = InternalRaftRequest {
        id: 7,
        ..Default::default()
    };
    assert_eq!(first_tag(&legacy_id.encode_to_vec()), (1, VARINT));
}

#[test]
fn fields_are_encoded_in_ascending_order() {
    let request = InternalRaftRequest {
        header: Some(RequestHeader {
            id: 5,
            ..Default::default()
        }),
        put: Some(Default::default()),
        ..Default::default()
    };
    // 4: put, empty; then 100: header {1: 5}.
    assert_eq!(
        request.encode_to_vec(),
        [0x22, 0x00, 0xa2, 0x06, 0x02, 0x08, 0x05]
    );
}

#[test]
fn bare_v2_request_does_not_decode_as_a_raft_request() {
    for path in ["/0/members/8e9e05c52164694d/attributes", "/0/version"] {
        let bare = Request {
            id: 99,
            method: "PUT".into(),
            path: path.into(),
            val: "3.5.0".into(),
            ..Default::default()
        }
        .encode_to_vec();
        assert!(InternalRaftRequest::decode(bare.as_slice()).is_err());
        assert_eq!(Request::decode(bare.as_slice()).unwrap().path, path);
    }
}

#[test]
fn key_value_encodes_to_the_canonical_bytes_of_hashes() {
    let kv = KeyValue {
        key: Bytes::from_static(b"foo"),
        create_revision: 2,
        mod_revision: 300,
        version: 1,
        value: Bytes::from_static(b"bar"),
        lease: -1,
    };
    let golden = [
        &[0x0a, 3][..],
        b"foo",
        &[0x10, 2, 0x18, 0xac, 0x02, 0x20, 1, 0x2a, 3],
        b"bar",
        // A negative int64 always takes ten bytes.
        &[
            0x30, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ],
    ]
    .concat();
    assert_eq!(kv.encode_to_vec(), golden);
    assert_eq!(KeyValue::decode(golden.as_slice()).unwrap(), kv);

    let tombstone = KeyValue {
        key: Bytes::from_static(b"foo"),
        ..Default::default()
    };
    assert_eq!(tombstone.encode_to_vec(), b"\x0a\x03foo", "zeros left out");
}

#[test]
fn decoding_from_shared_bytes_shares_the_value() {
    let encoded = Bytes::from(
        KeyValue {
            key: Bytes::from_static(b"k"),
            value: vec![7; 64].into(),
            ..Default::default()
        }
        .encode_to_vec(),
    );
    let range = encoded.as_ptr_range();
    let decoded = KeyValue::decode(encoded).unwrap();
    assert!(range.contains(&decoded.value.as_ptr()), "no copy was made");
}

#[test]
fn conf_state_lists_are_written_unpacked_and_read_either_way() {
    let conf_state = ConfState {
        voters: vec![1, 2],
        learners: vec![300],
        voters_outgoing: vec![4],
        learners_next: vec![5],
        auto_leave: true,
    };
    let unpacked = [
        0x08, 1, 0x08, 2, 0x10, 0xac, 0x02, 0x18, 4, 0x20, 5, 0x28, 1,
    ];
    let packed = [
        0x0a, 2, 1, 2, 0x12, 2, 0xac, 0x02, 0x1a, 1, 4, 0x22, 1, 5, 0x28, 1,
    ];
    assert_eq!(conf_state.encode_to_vec(), unpacked);
    assert_eq!(ConfState::decode(&unpacked[..]).unwrap(), conf_state);
    assert_eq!(ConfState::decode(&packed[..]).unwrap(), conf_state);
}

#[test]
fn raft_messages_with_and_without_explicit_zeros_decode_alike() {
    // MsgApp to 2 from 1 with one entry, as 3.7 encodes it.
    let sparse: &[u8] = &[
        0x08, 3, 0x10, 2, 0x18, 1, 0x20, 2, 0x28, 2, 0x30, 6, 0x3a, 8, 0x10, 2, 0x18, 7, 0x22, 2,
        b'h', b'i', 0x40, 6,
    ];
    // The same as 3.5 encodes it: zero type in the entry, an empty snapshot, zero reject and hint.
    let verbose: &[u8] = &[
        0x08, 3, 0x10, 2, 0x18, 1, 0x20, 2, 0x28, 2, 0x30, 6, 0x3a, 10, 0x08, 0, 0x10, 2, 0x18, 7,
        0x22, 2, b'h', b'i', 0x40, 6, 0x4a, 8, 0x12, 6, 0x0a, 0, 0x10, 0, 0x18, 0, 0x50, 0, 0x58,
        0,
    ];
    let from_sparse = RaftMessage::decode(sparse).unwrap();
    let mut from_verbose = RaftMessage::decode(verbose).unwrap();
    let snapshot = from_verbose.snapshot.take().unwrap();
    assert_eq!(snapshot.metadata.unwrap().index, 0, "empty means absent");
    assert_eq!(from_sparse, from_verbose);
    assert_eq!(from_sparse.encode_to_vec(), sparse, "zeros are not written");
}

#[test]
fn small_states_have_the_expected_bytes() {
    let entry = Entry {
        r#type: 1,
        term: 2,
        index: 3,
        data: Bytes::from_static(b"x"),
    };
    assert_eq!(
        entry.encode_to_vec(),
        [0x08, 1, 0x10, 2, 0x18, 3, 0x22, 1, b'x']
    );
    let hard_state = HardState {
        term: 1,
        vote: 0,
        commit: 9,
    };
    assert_eq!(hard_state.encode_to_vec(), [0x08, 1, 0x18, 9]);
    let metadata = Metadata {
        node_id: 1,
        cluster_id: 2,
    };
    assert_eq!(metadata.encode_to_vec(), [0x08, 1, 0x10, 2]);
}

/// Proves: S0-32, S0-33
#[test]
fn cluster_params_travel_in_attributes_and_with_the_version() {
    let params = ClusterParams {
        version: "3.8".into(),
        feature_gates: vec![Feature {
            name: "F".into(),
            enabled: true,
        }],
    };
    let params_bytes = [&[0x0a, 3][..], b"3.8", &[0x12, 5, 0x0a, 1, b'F', 0x10, 1]].concat();
    assert_eq!(params.encode_to_vec(), params_bytes);

    let attributes = Attributes {
        proposed_cluster_params: Some(params.clone()),
        ..Default::default()
    };
    let version_set = ClusterVersionSetRequest {
        cluster_params: Some(params),
        ..Default::default()
    };
    let prefixed = |tag: u8| [&[tag, 12][..], &params_bytes].concat();
    assert_eq!(attributes.encode_to_vec(), prefixed(3 << 3 | 2));
    assert_eq!(version_set.encode_to_vec(), prefixed(2 << 3 | 2));
}
