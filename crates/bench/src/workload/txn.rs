//! Transactions as kube-apiserver sends them: create, update, delete.
//!
//! Every client has its own keys, as a controller has its objects, so comparisons succeed and
//! each transaction writes.

use portunus_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, RangeRequest, RequestOp, TxnRequest,
    compare::{CompareResult, CompareTarget, TargetUnion},
    request_op::Request as Op,
};

use super::kv::write;
use super::{Load, LoadOutcome, WorkloadError};
use crate::answer::{Fields, field};
use crate::client::{self, PUTS_PER_FILL, VALUE_BYTES, key, put_of, puts_of};
use crate::closed_loop::{Completion, Requester, closed_loop};
use crate::wire::Method;

/// The distance between the first keys of two clients.
const KEYS_PER_CLIENT: usize = 10_000_000;

/// The kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnKind {
    /// Put if the key is absent.
    Create,
    /// Put if unchanged, else get.
    Update,
    /// Delete if unchanged, else get.
    Delete,
}

pub(super) async fn run(kind: TxnKind, load: &Load<'_>) -> Result<LoadOutcome, WorkloadError> {
    client::fill(&load.endpoint, load.scale.hot_keys, VALUE_BYTES).await?;
    let connections = load.connect().await?;
    let (durations, process_ids) = (load.scale.durations, &load.process_ids);
    let numbers = 0..load.clients;
    Ok(match kind {
        TxnKind::Create => {
            let clients = numbers.map(|number| Creator {
                next_key: KEYS_PER_CLIENT * (number + 1),
            });
            closed_loop(connections, clients.collect(), durations, process_ids).await?
        }
        TxnKind::Update => {
            let clients = numbers.map(Updater::of_client);
            closed_loop(connections, clients.collect(), durations, process_ids).await?
        }
        TxnKind::Delete => {
            let clients = numbers.map(|number| Deleter {
                next_key: KEYS_PER_CLIENT * (number + 1),
                made_to: KEYS_PER_CLIENT * (number + 1),
                revision: 0,
                is_making: false,
            });
            closed_loop(connections, clients.collect(), durations, process_ids).await?
        }
    })
}

fn is_unchanged(number: usize, revision: i64) -> Compare {
    Compare {
        key: key(number),
        target: CompareTarget::Mod.into(),
        result: CompareResult::Equal.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Compare::default()
    }
}

fn get(number: usize) -> Op {
    Op::RequestRange(RangeRequest {
        key: key(number),
        ..RangeRequest::default()
    })
}

fn txn(compare: Compare, success: Op, failure: Option<Op>) -> TxnRequest {
    let op = |request| RequestOp {
        request: Some(request),
    };
    TxnRequest {
        compare: vec![compare],
        success: vec![op(success)],
        failure: failure.map(op).into_iter().collect(),
    }
}

fn has_succeeded(answer: &[u8]) -> bool {
    Fields::of(answer).number(field::TXN_SUCCEEDED) != 0
}

fn revision_of(answer: &[u8]) -> i64 {
    let header = Fields::of(answer).message(field::HEADER);
    header.number(field::HEADER_REVISION)
}

struct Creator {
    next_key: usize,
}

impl Requester for Creator {
    fn next(&mut self, message: &mut Vec<u8>) -> Method {
        let put = Op::RequestPut(put_of(self.next_key));
        write(&txn(is_unchanged(self.next_key, 0), put, None), message);
        self.next_key += 1;
        Method::Txn
    }

    fn answered(&mut self, answer: &[u8]) -> Result<Completion, String> {
        if !has_succeeded(answer) {
            return Err("a new key existed already".to_owned());
        }
        Ok(Completion::Done)
    }
}

/// Updates one key repeatedly.
pub(super) struct Updater {
    key: usize,
    /// The mod revision of the key; 0 until the first answer.
    revision: i64,
}

impl Updater {
    pub(super) fn of_client(number: usize) -> Updater {
        Updater {
            key: KEYS_PER_CLIENT * (number + 1),
            revision: 0,
        }
    }
}

impl Requester for Updater {
    fn next(&mut self, message: &mut Vec<u8>) -> Method {
        let unchanged = is_unchanged(self.key, self.revision);
        let put = Op::RequestPut(put_of(self.key));
        write(&txn(unchanged, put, Some(get(self.key))), message);
        Method::Txn
    }

    fn answered(&mut self, answer: &[u8]) -> Result<Completion, String> {
        self.revision = if has_succeeded(answer) {
            revision_of(answer)
        } else {
            let found = Fields::of(answer).message(field::TXN_RESPONSES);
            let found = found.message(field::OP_RANGE).message(field::RANGE_KVS);
            found.number(field::KV_MOD_REVISION)
        };
        Ok(Completion::Done)
    }
}

/// Deletes one key after the other, and creates a hundred when none is left. The creation does
/// not count as an operation, but its cost does: a hundredth of a transaction per delete.
struct Deleter {
    next_key: usize,
    /// The end of the created keys.
    made_to: usize,
    /// The mod revision of the remaining keys.
    revision: i64,
    is_making: bool,
}

impl Requester for Deleter {
    fn next(&mut self, message: &mut Vec<u8>) -> Method {
        self.is_making = self.next_key == self.made_to;
        if self.is_making {
            self.made_to += PUTS_PER_FILL;
            write(&puts_of(self.next_key..self.made_to, VALUE_BYTES), message);
        } else {
            let delete = Op::RequestDeleteRange(DeleteRangeRequest {
                key: key(self.next_key),
                ..DeleteRangeRequest::default()
            });
            let unchanged = is_unchanged(self.next_key, self.revision);
            write(&txn(unchanged, delete, Some(get(self.next_key))), message);
            self.next_key += 1;
        }
        Method::Txn
    }

    fn answered(&mut self, answer: &[u8]) -> Result<Completion, String> {
        if self.is_making {
            self.revision = revision_of(answer);
            return Ok(Completion::Prepared);
        }
        if !has_succeeded(answer) {
            return Err("a key was changed after its creation".to_owned());
        }
        Ok(Completion::Done)
    }
}
