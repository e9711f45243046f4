#![allow(clippy::unwrap_used)]

use bytes::Bytes;

use super::request_op::Request;
use super::response_op::Response;
use super::*;
use crate::etcdserverpb::{Compare, InternalRaftRequest, ResponseHeader};

/// About the maximum depth of a request of the default size: with long lengths a level takes eight
/// bytes.
const DEPTH: usize = 200_000;
/// Small, so that even a hundred bytes per level would overflow it.
const STACK_BYTES: usize = 256 * 1024;

fn put(key: &'static str) -> RequestOp {
    RequestOp {
        request: Some(Request::RequestPut(PutRequest {
            key: key.into(),
            value: "v".into(),
            ..PutRequest::default()
        })),
    }
}

fn txn_op(txn: TxnRequest) -> RequestOp {
    RequestOp {
        request: Some(Request::RequestTxn(txn)),
    }
}

fn nested(depth: usize) -> TxnRequest {
    let mut txn = TxnRequest {
        success: vec![put("inner")],
        ..TxnRequest::default()
    };
    for _ in 0..depth {
        txn = TxnRequest {
            success: vec![txn_op(txn)],
            ..TxnRequest::default()
        };
    }
    txn
}

fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend(content);
    bytes
}

fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn requests_of_any_depth_are_encoded_decoded_and_dropped_on_a_small_stack() {
    on_a_small_stack(|| {
        let request = InternalRaftRequest {
            txn: Some(nested(DEPTH)),
            ..InternalRaftRequest::default()
        };
        let bytes = Bytes::from(request.encode_to_vec());
        assert_eq!(bytes.len(), request.encoded_len());
        let decoded = InternalRaftRequest::decode(bytes.clone()).unwrap();
        assert!(decoded.encode_to_vec() == bytes);
        let mut depth = 0;
        let mut txn = decoded.txn.as_ref().unwrap();
        while let Some(Request::RequestTxn(inner)) = &txn.success[0].request {
            txn = inner;
            depth += 1;
        }
        assert_eq!(depth, DEPTH);
        assert_eq!(txn.success, [put("inner")]);
    });
}

#[test]
fn responses_of_any_depth_are_encoded_decoded_and_dropped_on_a_small_stack() {
    on_a_small_stack(|| {
        let mut txn = TxnResponse::default();
        for _ in 0..DEPTH {
            txn = TxnResponse {
                header: Some(ResponseHeader::default()),
                succeeded: true,
                responses: vec![ResponseOp {
                    response: Some(Response::ResponseTxn(txn)),
                }],
            };
        }
        let bytes = Bytes::from(txn.encode_to_vec());
        let decoded = TxnResponse::decode(bytes.clone()).unwrap();
        assert!(decoded.encode_to_vec() == bytes);
    });
}

/// Compares with the hand-written bytes of a small tree.
#[test]
fn encoding_equals_canonical_protobuf() {
    let compare = Compare {
        key: "c".into(),
        ..Compare::default()
    };
    let inner = TxnRequest {
        compare: vec![compare.clone()],
        success: vec![put("a"), txn_op(TxnRequest::default())],
        failure: vec![RequestOp::default(), put("b")],
    };
    let outer = TxnRequest {
        failure: vec![txn_op(inner), put("d")],
        ..TxnRequest::default()
    };
    let put_bytes = |key: &str| field(2, &[field(1, key.as_bytes()), field(2, b"v")].concat());
    let inner_bytes = [
        field(1, &field(3, b"c")),
        field(2, &put_bytes("a")),
        field(2, &field(4, &[])),
        field(3, &[]),
        field(3, &put_bytes("b")),
    ]
    .concat();
    let expected = [field(3, &field(4, &inner_bytes)), field(3, &put_bytes("d"))].concat();
    assert_eq!(outer.encode_to_vec(), expected);
    assert_eq!(TxnRequest::decode(&expected[..]).unwrap(), outer);
    assert_eq!(outer.clone(), outer);
}

/// A later field of the oneof replaces an earlier one; the same one is merged; unknown fields are
/// skipped. At the top and nested.
#[test]
fn repeated_fields_merge_and_unknown_fields_are_skipped() {
    let put_bytes = field(2, &field(1, b"k"));
    let branch = |key: &str| {
        field(
            2,
            &field(2, &[field(1, key.as_bytes()), field(2, b"v")].concat()),
        )
    };
    let parts = [
        put_bytes,
        field(4, &branch("a")),
        field(9, b"unknown"),
        field(4, &branch("b")),
    ]
    .concat();
    let expected = txn_op(TxnRequest {
        success: vec![put("a"), put("b")],
        ..TxnRequest::default()
    });
    assert_eq!(RequestOp::decode(&parts[..]).unwrap(), expected);
    let outer = field(4, &field(3, &parts));
    let expected = txn_op(TxnRequest {
        failure: vec![expected],
        ..TxnRequest::default()
    });
    assert_eq!(RequestOp::decode(&outer[..]).unwrap(), expected);
}

#[test]
fn damaged_operations_are_refused() {
    for bytes in [
        // A length beyond the end, at the top and nested.
        &[0x22, 0x05, 0x12][..],
        &[0x22, 0x02, 0x12, 0x7f],
        &[0x22, 0x04, 0x12, 0x02, 0x22, 0x01],
        // Wrong wire types: the operation's transaction, a branch.
        &[0x20, 0x01],
        &[0x22, 0x02, 0x10, 0x01],
        // A key that ends early.
        &[0x22, 0x01, 0x80],
    ] {
        assert!(RequestOp::decode(bytes).is_err(), "{bytes:x?}");
    }
}
