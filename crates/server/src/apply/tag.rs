//! The feature `ApplyTag`: a change to what apply writes, for tests of cluster features.
//!
//! It stands for any feature that would make members differ if they did not agree on its
//! value entry by entry.

use bytes::Bytes;
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{InternalRaftRequest, PutRequest, RequestOp, TxnRequest};

/// Only these keys are touched.
const PREFIX: &[u8] = b"/apply-tag/";

/// Appends the log index to the values a request writes below the prefix.
pub fn tag(request: &mut InternalRaftRequest, index: u64) {
    if let Some(put) = &mut request.put {
        tag_put(put, index);
    }
    if let Some(txn) = &mut request.txn {
        tag_txn(txn, index);
    }
}

fn tag_put(put: &mut PutRequest, index: u64) {
    if put.key.starts_with(PREFIX) && !put.ignore_value {
        let mut value = put.value.to_vec();
        value.extend_from_slice(format!("@{index}").as_bytes());
        put.value = Bytes::from(value);
    }
}

fn tag_txn(txn: &mut TxnRequest, index: u64) {
    let both = txn.success.iter_mut().chain(&mut txn.failure);
    for RequestOp { request } in both {
        match request {
            Some(Request::RequestPut(put)) => tag_put(put, index),
            Some(Request::RequestTxn(inner)) => tag_txn(inner, index),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str) -> PutRequest {
        PutRequest {
            key: Bytes::from_static(key.as_bytes()),
            value: Bytes::from_static(b"v"),
            ..PutRequest::default()
        }
    }

    fn op(request: Request) -> RequestOp {
        RequestOp {
            request: Some(request),
        }
    }

    #[test]
    fn values_below_the_prefix_get_the_index() {
        let inner = TxnRequest {
            failure: vec![op(Request::RequestPut(put("/apply-tag/b")))],
            ..TxnRequest::default()
        };
        let mut request = InternalRaftRequest {
            put: Some(put("/apply-tag/a")),
            txn: Some(TxnRequest {
                success: vec![
                    op(Request::RequestPut(put("/other"))),
                    op(Request::RequestTxn(inner)),
                ],
                ..TxnRequest::default()
            }),
            ..InternalRaftRequest::default()
        };
        tag(&mut request, 17);
        assert_eq!(request.put.unwrap().value.as_ref(), b"v@17");
        let text = format!("{:?}", request.txn.unwrap());
        assert_eq!(text.matches("v@17").count(), 1, "{text}");
    }
}
