//! The quota cost of requests.

use std::convert::Infallible;

use portunus_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest, request_op::Request};

use super::branches::{Outcomes, fold};

/// Charged for a record on top of its key and value.
const RECORD_OVERHEAD_BYTES: u64 = 256;

/// Charged for granting a lease.
pub const LEASE_GRANT_COST_BYTES: u64 = 64;

/// The quota if none is configured.
pub const QUOTA_BYTES_DEFAULT: u64 = 2 << 30;

/// The cost of a put.
#[must_use]
pub fn put_cost_bytes(put: &PutRequest) -> u64 {
    RECORD_OVERHEAD_BYTES + put.key.len() as u64 + put.value.len() as u64
}

/// The cost of a transaction: that of its more expensive branch. Zero if it
/// puts nothing, and then no quota refuses it.
#[must_use]
pub fn txn_cost_bytes(txn: &TxnRequest) -> u64 {
    branch_cost_bytes(&txn.success).max(branch_cost_bytes(&txn.failure))
}

fn branch_cost_bytes(ops: &[RequestOp]) -> u64 {
    let cost = |ops: &[RequestOp], nested: Vec<Outcomes<u64>>| {
        let puts = ops.iter().map(|op| match &op.request {
            Some(Request::RequestPut(put)) => put_cost_bytes(put),
            _ => 0,
        });
        let nested = nested.iter().map(|both| both.success.max(both.failure));
        Ok::<u64, Infallible>(puts.chain(nested).sum())
    };
    match fold(ops, cost) {
        Ok(bytes) => bytes,
    }
}

/// Whether a request fits. `quota_bytes` of `None` means there is no quota.
#[must_use]
pub fn fits(total_bytes: u64, cost_bytes: u64, quota_bytes: Option<u64>) -> bool {
    match quota_bytes {
        Some(quota_bytes) if cost_bytes > 0 => total_bytes.saturating_add(cost_bytes) < quota_bytes,
        _ => true,
    }
}
