//! Conversion between the model's requests and answers and etcd's messages.
//!
//! Clients use it for requests and answers, [`crate::at_rest`] for the entries of a log.

use portunus_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use portunus_proto::etcdserverpb::request_op::Request as ProtoOp;
use portunus_proto::etcdserverpb::response_op::Response as ProtoOpAnswer;
use portunus_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, InternalRaftRequest, PutRequest, RangeRequest, RequestOp,
    ResponseHeader, TxnRequest, TxnResponse,
};
use portunus_proto::mvccpb::KeyValue;

use crate::linearizability::etcd::{
    Answer, Condition, Entry, Key, Keys, Op, OpAnswer, Request, Txn,
};

/// As start the first key, as end no upper bound.
const ALL_KEYS: &[u8] = &[0];

/// Converts a key.
#[must_use]
pub fn key(bytes: &[u8]) -> Key {
    String::from_utf8_lossy(bytes).into()
}

/// Converts a key-value pair to an entry.
#[must_use]
pub fn entry(kv: &KeyValue) -> Entry {
    Entry {
        value: String::from_utf8_lossy(&kv.value).into(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

/// Converts key-value pairs to keys and entries.
#[must_use]
pub fn entries(kvs: &[KeyValue]) -> Vec<(Key, Entry)> {
    kvs.iter().map(|kv| (key(&kv.key), entry(kv))).collect()
}

/// A put that returns the previous entry.
#[must_use]
pub fn put(key: &str, value: &str, lease: i64) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        lease,
        prev_kv: true,
        ..PutRequest::default()
    }
}

/// A linearizable read of the newest revision.
#[must_use]
pub fn range(keys: &Keys) -> RangeRequest {
    let (key, range_end) = bounds(keys);
    RangeRequest {
        key: key.into(),
        range_end: range_end.into(),
        ..RangeRequest::default()
    }
}

/// A deletion that returns the deleted entries.
#[must_use]
pub fn delete(keys: &Keys) -> DeleteRangeRequest {
    let (key, range_end) = bounds(keys);
    DeleteRangeRequest {
        key: key.into(),
        range_end: range_end.into(),
        prev_kv: true,
    }
}

fn bounds(keys: &Keys) -> (Vec<u8>, Vec<u8>) {
    match keys {
        Keys::One(key) => (key.as_bytes().to_vec(), Vec::new()),
        Keys::All => (ALL_KEYS.to_vec(), ALL_KEYS.to_vec()),
    }
}

/// Converts a transaction.
#[must_use]
pub fn txn(txn: &Txn) -> TxnRequest {
    let compare = |(key, condition): &(Key, Condition)| {
        let (target, union) = match condition {
            Condition::ModRevision(is) => (CompareTarget::Mod, TargetUnion::ModRevision(*is)),
            Condition::CreateRevision(is) => {
                (CompareTarget::Create, TargetUnion::CreateRevision(*is))
            }
            Condition::Version(is) => (CompareTarget::Version, TargetUnion::Version(*is)),
        };
        Compare {
            result: CompareResult::Equal as i32,
            target: target as i32,
            key: key.as_bytes().to_vec().into(),
            target_union: Some(union),
            ..Compare::default()
        }
    };
    let op = |op: &Op| RequestOp {
        request: Some(match op {
            Op::Put(key, value, lease) => ProtoOp::RequestPut(put(key, value, *lease)),
            Op::Get(keys) => ProtoOp::RequestRange(range(keys)),
            Op::Delete(keys) => ProtoOp::RequestDeleteRange(delete(keys)),
        }),
    };
    TxnRequest {
        compare: txn.when.iter().map(compare).collect(),
        success: txn.then.iter().map(op).collect(),
        failure: txn.otherwise.iter().map(op).collect(),
    }
}

/// Converts the answer to a single operation.
#[must_use]
pub fn op_answer(header: Option<&ResponseHeader>, answer: OpAnswer) -> Answer {
    Answer::Txn {
        revision: header.map_or(0, |header| header.revision),
        succeeded: true,
        answers: vec![answer],
    }
}

/// Converts the answer to a transaction; fields outside the model are ignored.
#[must_use]
pub fn txn_answer(response: &TxnResponse) -> Answer {
    let answers = response.responses.iter().filter_map(|op| {
        Some(match op.response.as_ref()? {
            ProtoOpAnswer::ResponsePut(put) => OpAnswer::Put(put.prev_kv.as_ref().map(entry)),
            ProtoOpAnswer::ResponseRange(range) => OpAnswer::Get(entries(&range.kvs)),
            ProtoOpAnswer::ResponseDeleteRange(range) => OpAnswer::Delete(entries(&range.prev_kvs)),
            ProtoOpAnswer::ResponseTxn(_) => return None,
        })
    });
    Answer::Txn {
        revision: response.header.as_ref().map_or(0, |header| header.revision),
        succeeded: response.succeeded,
        answers: answers.collect(),
    }
}

/// Converts a request from the log. Returns `None` if it changes neither keys nor leases, and
/// an error if the model cannot express it.
pub fn logged(request: &InternalRaftRequest) -> Result<Option<Request>, &'static str> {
    Ok(Some(if let Some(put) = &request.put {
        Request::op(put_of(put))
    } else if let Some(delete) = &request.delete_range {
        Request::op(Op::Delete(keys_of(&delete.key, &delete.range_end)?))
    } else if let Some(txn) = &request.txn {
        Request::Txn(txn_of(txn)?)
    } else if let Some(grant) = &request.lease_grant {
        Request::Grant(grant.id)
    } else if let Some(revoke) = &request.lease_revoke {
        Request::Revoke(revoke.id)
    } else {
        return Ok(None);
    }))
}

/// Formats the part of a request that is set.
#[must_use]
pub fn show(request: &InternalRaftRequest) -> String {
    let all = format!("{request:?}");
    let fields = all
        .trim_start_matches("InternalRaftRequest { ")
        .trim_end_matches(" }");
    let is_set = |field: &&str| !field.ends_with(": None") && *field != "id: 0";
    fields
        .split(", ")
        .filter(is_set)
        .collect::<Vec<_>>()
        .join(", ")
}

fn put_of(put: &PutRequest) -> Op {
    let value = String::from_utf8_lossy(&put.value);
    Op::Put(key(&put.key), value.into(), put.lease)
}

fn keys_of(start: &[u8], end: &[u8]) -> Result<Keys, &'static str> {
    match (start, end) {
        (start, []) => Ok(Keys::One(key(start))),
        (ALL_KEYS, ALL_KEYS) => Ok(Keys::All),
        _ => Err("a range of keys"),
    }
}

fn txn_of(txn: &TxnRequest) -> Result<Txn, &'static str> {
    let condition = |compare: &Compare| match &compare.target_union {
        _ if compare.result() != CompareResult::Equal => Err("a condition other than equality"),
        Some(TargetUnion::ModRevision(is)) => Ok(Condition::ModRevision(*is)),
        Some(TargetUnion::CreateRevision(is)) => Ok(Condition::CreateRevision(*is)),
        Some(TargetUnion::Version(is)) => Ok(Condition::Version(*is)),
        _ => Err("a condition on a value or a lease"),
    };
    let op = |op: &RequestOp| match &op.request {
        Some(ProtoOp::RequestPut(put)) => Ok(put_of(put)),
        Some(ProtoOp::RequestRange(range)) => Ok(Op::Get(keys_of(&range.key, &range.range_end)?)),
        Some(ProtoOp::RequestDeleteRange(range)) => {
            Ok(Op::Delete(keys_of(&range.key, &range.range_end)?))
        }
        Some(ProtoOp::RequestTxn(_)) | None => Err("a transaction in a transaction"),
    };
    let mut when = Vec::new();
    for compare in &txn.compare {
        when.push((key(&compare.key), condition(compare)?));
    }
    Ok(Txn {
        when,
        then: txn.success.iter().map(op).collect::<Result<_, &str>>()?,
        otherwise: txn.failure.iter().map(op).collect::<Result<_, &str>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip_through_the_log() {
        let request = Txn {
            when: vec![
                ("a".into(), Condition::ModRevision(3)),
                ("b".into(), Condition::CreateRevision(2)),
                ("c".into(), Condition::Version(1)),
            ],
            then: vec![
                Op::Put("a".into(), "1".into(), 7),
                Op::Delete(Keys::One("b".into())),
            ],
            otherwise: vec![Op::Get(Keys::All), Op::Get(Keys::One("a".into()))],
        };
        let entry = InternalRaftRequest {
            txn: Some(txn(&request)),
            ..InternalRaftRequest::default()
        };
        assert_eq!(logged(&entry), Ok(Some(Request::Txn(request))));
        assert_eq!(logged(&InternalRaftRequest::default()), Ok(None));
    }
}
