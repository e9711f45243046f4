//! Short constructors of requests; other fields have their defaults.

use portunus_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

/// A range of one key.
pub fn get(key: &str) -> RangeRequest {
    RangeRequest {
        key: key.to_owned().into(),
        ..RangeRequest::default()
    }
}

/// The range `[key, end)`.
pub fn range(key: &str, end: &str) -> RangeRequest {
    RangeRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        ..RangeRequest::default()
    }
}

/// The range of all keys.
pub fn everything() -> RangeRequest {
    range("\0", "\0")
}

pub fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..PutRequest::default()
    }
}

pub fn delete(key: &str) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key.to_owned().into(),
        ..DeleteRangeRequest::default()
    }
}

/// A compare of one key.
pub fn compare(key: &str, result: CompareResult, with: TargetUnion) -> Compare {
    let target = match with {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        result: result as i32,
        target: target as i32,
        key: key.to_owned().into(),
        target_union: Some(with),
        ..Compare::default()
    }
}

pub fn ops<const N: usize>(ops: [Request; N]) -> Vec<RequestOp> {
    ops.into_iter()
        .map(|op| RequestOp { request: Some(op) })
        .collect()
}

/// A transaction without conditions.
pub fn txn<const N: usize>(then: [Request; N]) -> TxnRequest {
    TxnRequest {
        success: ops(then),
        ..TxnRequest::default()
    }
}

pub fn put_op(key: &str, value: &str) -> Request {
    Request::RequestPut(put(key, value))
}

pub fn delete_op(key: &str) -> Request {
    Request::RequestDeleteRange(delete(key))
}

pub fn get_op(key: &str) -> Request {
    Request::RequestRange(get(key))
}
