//! The feature `ApplyTag`: a change to what apply writes, for tests of cluster features.
//!
//! It stands for any feature that would make members differ if they did not agree on its
//! value entry by entry; no released program has it. As a real one might, it keeps something of its own in the backend:
//! where it last acted.

use bytes::Bytes;
use portunus_features::ApplyTag;
use portunus_mvcc::backend::Bucket;
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{InternalRaftRequest, PutRequest, RequestOp, TxnRequest};

use super::{Applier, ApplyFaultError};

/// Only these keys are touched.
const PREFIX: &[u8] = b"/apply-tag/";

/// The index of the last request that was tagged, in the bucket `cluster`.
pub(super) const MARK: &[u8] = b"applyTag";

impl Applier {
    /// The request as the feature changes it; where it last did is written down.
    pub(super) fn tagged(
        &mut self,
        index: u64,
        mut request: InternalRaftRequest,
    ) -> Result<InternalRaftRequest, ApplyFaultError> {
        if self.view.enabled(ApplyTag) && tag(&mut request, index) {
            let value = Bytes::from(index.to_string());
            self.store
                .put_raw(Bucket::Cluster, Bytes::from_static(MARK), value)
                .map_err(|source| ApplyFaultError::Store { index, source })?;
        }
        Ok(request)
    }
}

/// Appends the log index to the values a request writes below the prefix. Returns whether
/// there was one.
fn tag(request: &mut InternalRaftRequest, index: u64) -> bool {
    let mut is_tagged = false;
    if let Some(put) = &mut request.put {
        is_tagged |= tag_put(put, index);
    }
    if let Some(txn) = &mut request.txn {
        is_tagged |= tag_txn(txn, index);
    }
    is_tagged
}

fn tag_put(put: &mut PutRequest, index: u64) -> bool {
    if !put.key.starts_with(PREFIX) || put.ignore_value {
        return false;
    }
    let mut value = put.value.to_vec();
    value.extend_from_slice(format!("@{index}").as_bytes());
    put.value = Bytes::from(value);
    true
}

fn tag_txn(txn: &mut TxnRequest, index: u64) -> bool {
    let mut is_tagged = false;
    let mut pending = vec![txn];
    while let Some(txn) = pending.pop() {
        for RequestOp { request } in txn.success.iter_mut().chain(&mut txn.failure) {
            match request {
                Some(Request::RequestPut(put)) => is_tagged |= tag_put(put, index),
                Some(Request::RequestTxn(inner)) => pending.push(inner),
                _ => {}
            }
        }
    }
    is_tagged
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
        assert!(tag(&mut request, 17));
        assert_eq!(request.put.unwrap().value.as_ref(), b"v@17");
        let text = format!("{:?}", request.txn.unwrap());
        assert_eq!(text.matches("v@17").count(), 1, "{text}");
    }
}
