//! Random requests about keys and leases, and their answers as text.

use portunus_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::response_op::Response as OpResponse;
use portunus_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};
use tonic::Status;
use tonic::metadata::AsciiMetadataValue;

use crate::common::Clients;
use crate::common::random::Random;

/// What a request carries to name its user.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// A key of the metadata and the token; none for an anonymous request.
    pub token: Option<(&'static str, String)>,
}

impl Credentials {
    /// Returns a request with these credentials.
    pub fn sign<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some((key, token)) = &self.token {
            let token = AsciiMetadataValue::try_from(token.as_str()).unwrap();
            request.metadata_mut().insert(*key, token);
        }
        request
    }
}

/// A request of any kind.
#[derive(Debug, Clone)]
pub enum Request {
    Range(RangeRequest),
    RangeStream(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(LeaseRevokeRequest),
}

fn key(random: &mut Random) -> bytes::Bytes {
    let names = ["", "a", "b", "c", "d", "da", "db", "e"];
    // Rarely the empty key, which is refused.
    let at = if random.below(60) == 0 {
        0
    } else {
        1 + random.below(7)
    };
    names[at as usize].into()
}

fn end(random: &mut Random) -> bytes::Bytes {
    match random.below(6) {
        0 => "\0".into(),
        1 => "d".into(),
        2 => "e".into(),
        3 => "a".into(),
        _ => bytes::Bytes::new(),
    }
}

pub fn revision(random: &mut Random, newest: i64) -> i64 {
    match random.below(8) {
        0 => newest + 3,
        1 => newest,
        2 => 1,
        3 => (newest - random.below(20) as i64).max(0),
        _ => 0,
    }
}

/// Creates a range. There are fewer keys than Go's sort needs to be unstable, so ties are in
/// stored order.
pub fn range(random: &mut Random, newest: i64) -> RangeRequest {
    let is_sorted = random.below(3) > 0;
    RangeRequest {
        key: key(random),
        range_end: end(random),
        limit: random.below(4) as i64,
        revision: revision(random, newest),
        sort_order: if is_sorted { random.below(3) as i32 } else { 0 },
        sort_target: if is_sorted { random.below(5) as i32 } else { 0 },
        serializable: random.below(2) == 0,
        keys_only: random.below(5) == 0,
        count_only: random.below(6) == 0,
        min_mod_revision: if random.below(8) == 0 { newest / 2 } else { 0 },
        max_create_revision: if random.below(8) == 0 { newest / 2 } else { 0 },
        ..RangeRequest::default()
    }
}

pub fn put(random: &mut Random) -> PutRequest {
    let ignore_value = random.below(12) == 0;
    let ignore_lease = random.below(12) == 0;
    PutRequest {
        key: key(random),
        value: if ignore_value && random.below(3) > 0 {
            bytes::Bytes::new()
        } else {
            format!("v{}", random.below(100)).into()
        },
        lease: if random.below(4) == 0 {
            random.below(6) as i64
        } else {
            0
        },
        prev_kv: random.below(2) == 0,
        ignore_value,
        ignore_lease,
    }
}

pub fn delete(random: &mut Random) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key(random),
        range_end: end(random),
        prev_kv: random.below(2) == 0,
    }
}

fn compare(random: &mut Random, newest: i64) -> Compare {
    let number = match random.below(3) {
        0 => 0,
        1 => newest,
        _ => random.below(5) as i64,
    };
    let (target, union) = match random.below(5) {
        0 => (CompareTarget::Version, TargetUnion::Version(number)),
        1 => (CompareTarget::Create, TargetUnion::CreateRevision(number)),
        2 => (CompareTarget::Mod, TargetUnion::ModRevision(number)),
        3 => (
            CompareTarget::Value,
            TargetUnion::Value(format!("v{number}").into()),
        ),
        _ => (CompareTarget::Lease, TargetUnion::Lease(number)),
    };
    Compare {
        result: [
            CompareResult::Equal,
            CompareResult::Greater,
            CompareResult::Less,
            CompareResult::NotEqual,
        ][random.below(4) as usize] as i32,
        target: target as i32,
        key: key(random),
        range_end: end(random),
        target_union: Some(union),
    }
}

pub fn txn(random: &mut Random, newest: i64, depth: u32) -> TxnRequest {
    fn ops(random: &mut Random, newest: i64, depth: u32) -> Vec<RequestOp> {
        (0..random.below(4))
            .map(|_| {
                let op = match random.below(if depth == 0 { 3 } else { 4 }) {
                    0 => Op::RequestRange(range(random, newest)),
                    // A put that keeps the value or lease of a key which an earlier operation
                    // of the transaction deleted makes a Go etcd panic, so it has no response
                    // to compare with.
                    1 => Op::RequestPut(PutRequest {
                        ignore_value: false,
                        ignore_lease: false,
                        ..put(random)
                    }),
                    2 => Op::RequestDeleteRange(delete(random)),
                    _ => Op::RequestTxn(txn(random, newest, depth - 1)),
                };
                RequestOp { request: Some(op) }
            })
            .collect()
    }
    TxnRequest {
        compare: (0..random.below(3))
            .map(|_| compare(random, newest))
            .collect(),
        success: ops(random, newest, depth),
        failure: ops(random, newest, depth),
    }
}

pub fn request(random: &mut Random, newest: i64) -> Request {
    match random.below(20) {
        0..=3 => Request::Range(range(random, newest)),
        4 => Request::RangeStream(range(random, newest)),
        5..=9 => Request::Put(put(random)),
        10..=11 => Request::Delete(delete(random)),
        12..=16 => Request::Txn(txn(random, newest, 2)),
        17 => Request::Compact(CompactionRequest {
            revision: revision(random, newest),
            physical: random.below(2) == 0,
        }),
        18 => Request::Grant(LeaseGrantRequest {
            ttl: 100_000 + random.below(10) as i64,
            id: 1 + random.below(5) as i64,
        }),
        _ => Request::Revoke(LeaseRevokeRequest {
            id: 1 + random.below(6) as i64,
        }),
    }
}

/// Makes ranges that end before they start end nowhere. They have no keys, and whether etcd permits
/// them depends on the order in which its tree of permissions was built.
pub fn straighten(request: &mut Request) {
    match request {
        Request::Range(range) | Request::RangeStream(range) => {
            straighten_range(&range.key, &mut range.range_end);
        }
        Request::Delete(delete) => straighten_range(&delete.key, &mut delete.range_end),
        Request::Txn(txn) => straighten_txn(txn),
        _ => {}
    }
}

fn straighten_txn(txn: &mut TxnRequest) {
    for compare in &mut txn.compare {
        straighten_range(&compare.key, &mut compare.range_end);
    }
    let ops = txn.success.iter_mut().chain(&mut txn.failure);
    for op in ops.filter_map(|op| op.request.as_mut()) {
        match op {
            Op::RequestRange(range) => straighten_range(&range.key, &mut range.range_end),
            Op::RequestDeleteRange(delete) => {
                straighten_range(&delete.key, &mut delete.range_end);
            }
            Op::RequestTxn(txn) => straighten_txn(txn),
            Op::RequestPut(_) => {}
        }
    }
}

/// See [`straighten`].
pub fn straighten_range(key: &bytes::Bytes, range_end: &mut bytes::Bytes) {
    if !range_end.is_empty() && range_end.as_ref() != b"\0" && *range_end < *key {
        *range_end = bytes::Bytes::from_static(b"\0");
    }
}

fn has_op(txn: &TxnRequest, is_it: fn(&Op) -> bool) -> bool {
    let ops = txn.success.iter().chain(&txn.failure);
    let mut ops = ops.filter_map(|op| op.request.as_ref());
    ops.any(|op| match op {
        Op::RequestTxn(inner) => has_op(inner, is_it),
        op => is_it(op),
    })
}

pub fn deletes(txn: &TxnRequest) -> bool {
    has_op(txn, |op| matches!(op, Op::RequestDeleteRange(_)))
}

pub fn puts(txn: &TxnRequest) -> bool {
    has_op(txn, |op| matches!(op, Op::RequestPut(_)))
}

/// Formats a response without ids and terms, which differ between clusters.
pub fn answer<R>(result: Result<tonic::Response<R>, Status>, clean: impl FnOnce(&mut R)) -> String
where
    R: std::fmt::Debug,
{
    match result {
        Ok(response) => {
            let mut message = response.into_inner();
            clean(&mut message);
            format!("{message:?}")
        }
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}

pub fn clear(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header {
        header.cluster_id = 0;
        header.member_id = 0;
        header.raft_term = 0;
    }
}

fn clear_txn(response: &mut TxnResponse) {
    clear(&mut response.header);
    for op in &mut response.responses {
        if let Some(OpResponse::ResponseTxn(inner)) = &mut op.response {
            clear_txn(inner);
        }
    }
}

/// Joins the pieces of a streamed range.
async fn streamed(
    clients: &mut Clients,
    request: tonic::Request<RangeRequest>,
) -> Result<tonic::Response<RangeResponse>, Status> {
    let mut pieces = clients.kv.range_stream(request).await?.into_inner();
    let mut whole = RangeResponse::default();
    while let Some(piece) = pieces.message().await? {
        let piece = piece.range_response.unwrap_or_default();
        let kvs = whole.kvs.into_iter().chain(piece.kvs).collect();
        whole = RangeResponse { kvs, ..piece };
    }
    Ok(tonic::Response::new(whole))
}

/// Sends a request as a user; returns its answer.
pub async fn send(clients: &mut Clients, request: Request, by: &Credentials) -> String {
    let (kv, lease) = (&mut clients.kv, &mut clients.lease);
    match request {
        Request::Range(r) => answer(kv.range(by.sign(r)).await, |m| clear(&mut m.header)),
        Request::RangeStream(r) => {
            let whole = streamed(clients, by.sign(r)).await;
            answer(whole, |m| clear(&mut m.header))
        }
        Request::Put(r) => answer(kv.put(by.sign(r)).await, |m| clear(&mut m.header)),
        Request::Delete(r) => {
            let deleted = kv.delete_range(by.sign(r)).await;
            answer(deleted, |m| clear(&mut m.header))
        }
        Request::Txn(r) => answer(kv.txn(by.sign(r)).await, clear_txn),
        Request::Compact(r) => answer(kv.compact(by.sign(r)).await, |m| clear(&mut m.header)),
        Request::Grant(r) => {
            let granted = lease.lease_grant(by.sign(r)).await;
            answer(granted, |m| clear(&mut m.header))
        }
        Request::Revoke(r) => {
            let revoked = lease.lease_revoke(by.sign(r)).await;
            answer(revoked, |m| clear(&mut m.header))
        }
    }
}
