//! The feature `ApplyTag`: a change to what apply writes, for tests of cluster features.
//!
//! It stands for any feature that would make members differ if they did not agree on its
//! value entry by entry; no released program has it. As a real one might, it stores data of its
//! own: the index at which it last acted.

use bytes::Bytes;
use portunus_features::ApplyTag;
use portunus_gates::Feature;
use portunus_mvcc::backend::Bucket;
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest};

use super::StateMachine;
use crate::command::DataCommand;
use crate::entry_error::EntryError;

/// Only these keys are touched.
const PREFIX: &[u8] = b"/apply-tag/";

/// The index of the last request that was tagged: the record that the feature declares.
const MARK: &[u8] = ApplyTag::DECLARATION.stores[0].1;

impl StateMachine {
    /// Returns the request as the feature changes it, and stores the index if it did.
    pub(super) fn tagged(
        &mut self,
        index: u64,
        mut command: DataCommand,
    ) -> Result<DataCommand, EntryError> {
        if self.view.enabled(ApplyTag) && tag(&mut command, index) {
            let value = Bytes::from(index.to_string());
            self.store
                .put_raw(Bucket::Cluster, Bytes::from_static(MARK), value)
                .map_err(|source| EntryError::Store { index, source })?;
        }
        Ok(command)
    }
}

/// Appends the log index to the values a request writes below the prefix. Returns whether
/// there was one.
fn tag(command: &mut DataCommand, index: u64) -> bool {
    match command {
        DataCommand::Put(put) => tag_put(put, index),
        DataCommand::Txn(txn) => tag_txn(txn, index),
        _ => false,
    }
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
        let mut command = DataCommand::Put(put("/apply-tag/a"));
        assert!(tag(&mut command, 17));
        let text = format!("{command:?}");
        assert!(text.contains("v@17"), "{text}");
        let mut command = DataCommand::Txn(TxnRequest {
            success: vec![
                op(Request::RequestPut(put("/other"))),
                op(Request::RequestTxn(inner)),
            ],
            ..TxnRequest::default()
        });
        assert!(tag(&mut command, 17));
        let text = format!("{command:?}");
        assert_eq!(text.matches("v@17").count(), 1, "{text}");
    }
}
