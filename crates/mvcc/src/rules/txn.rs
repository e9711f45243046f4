//! Transactions: choose, check, execute.
//!
//! All compares on the chosen path are evaluated against the state before the
//! transaction; then every operation on that path is checked; only then state
//! changes. So a refused transaction changes nothing and an accepted one fails
//! only if stored state cannot be read.

use std::ops::ControlFlow;

use bytes::Bytes;
use portunus_proto::{
    EtcdError, LeaseId,
    etcdserverpb::{
        Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
        RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        request_op::Request,
        response_op::Response,
    },
    mvccpb::KeyValue,
};

use super::{
    lease::LeaseLookup,
    range::{self, Counting, KeyRange},
    view::{Copies, KeyView},
};
use crate::error::ReadError;

/// Whether ranges inside a transaction are executed. A member without a waiting
/// client skips them after the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeResults {
    /// A client of this member waits for the response.
    Wanted,
    /// No client waits; the range responses hold only their revision.
    Unwanted,
}

/// State that can be changed. Reads see the changes made before them, and
/// [`KeyView::revision`] is one higher from the first change on.
pub trait WriteView: KeyView {
    /// Writes a key.
    fn put(&mut self, key: &Bytes, value: Bytes, lease: LeaseId);

    /// Removes every key of the range in key order and returns their number.
    fn delete(&mut self, range: &KeyRange) -> i64;
}

/// The branches a transaction takes, fixed before anything runs: for itself and for every
/// nested one on the taken path, outer before inner and earlier before later, whether its
/// comparisons hold.
///
/// No step recurses: a log may hold transactions of any depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    succeeded: Vec<bool>,
}

/// The remaining operations of a branch.
type Ops<'a> = std::slice::Iter<'a, RequestOp>;

impl Path {
    /// Evaluates all compares on the path.
    pub fn choose(view: &impl KeyView, txn: &TxnRequest) -> Result<Self, ReadError> {
        let all_hold = |txn: &TxnRequest| -> Result<bool, ReadError> {
            for compare in &txn.compare {
                if !holds(view, compare)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let mut succeeded = vec![all_hold(txn)?];
        let mut levels = vec![branch(txn, succeeded[0]).iter()];
        while let Some(ops) = levels.last_mut() {
            match ops.next().map(|op| &op.request) {
                None => {
                    levels.pop();
                }
                Some(Some(Request::RequestTxn(txn))) => {
                    let holds = all_hold(txn)?;
                    succeeded.push(holds);
                    levels.push(branch(txn, holds).iter());
                }
                Some(_) => {}
            }
        }
        Ok(Self { succeeded })
    }

    /// Returns the outcomes in the order in which a walk along the path visits transactions.
    fn outcomes(&self) -> impl FnMut() -> bool {
        let mut succeeded = self.succeeded.iter();
        // There is one outcome for every transaction on the path.
        move || succeeded.next().copied().unwrap_or_default()
    }

    /// Checks every operation of the taken branches.
    pub fn check(
        &self,
        view: &impl KeyView,
        leases: &dyn LeaseLookup,
        txn: &TxnRequest,
    ) -> Result<(), ReadError> {
        let mut next_outcome = self.outcomes();
        let mut deleted_keys = DeletedKeys::default();
        let mut levels = vec![branch(txn, next_outcome()).iter()];
        while let Some(ops) = levels.last_mut() {
            let Some(op) = ops.next() else {
                levels.pop();
                continue;
            };
            match &op.request {
                Some(Request::RequestRange(range)) => check_range(view, range)?,
                Some(Request::RequestPut(put)) => {
                    check_put(view, leases, put)?;
                    deleted_keys.check_put(put)?;
                }
                Some(Request::RequestTxn(txn)) => levels.push(branch(txn, next_outcome()).iter()),
                Some(Request::RequestDeleteRange(delete)) => deleted_keys.delete(delete),
                None => {}
            }
        }
        Ok(())
    }

    /// Runs the taken branches. Call [`Self::check`] first.
    pub fn execute(
        &self,
        view: &mut impl WriteView,
        txn: &TxnRequest,
        ranges: RangeResults,
    ) -> Result<TxnResponse, ReadError> {
        let mut next_outcome = self.outcomes();
        let mut current = Running::start(txn, next_outcome());
        let mut outer = Vec::new();
        loop {
            match current.ops.next().map(|op| &op.request) {
                Some(Some(Request::RequestTxn(txn))) => {
                    let inner = Running::start(txn, next_outcome());
                    outer.push(std::mem::replace(&mut current, inner));
                }
                Some(request) => {
                    let response = match request {
                        Some(request) => execute_op(view, request, ranges)?,
                        None => None,
                    };
                    current.responses.push(ResponseOp { response });
                }
                None => {
                    let mut response = current.finish();
                    let Some(around) = outer.pop() else {
                        response.header = Some(header(view.revision()));
                        return Ok(response);
                    };
                    // A nested transaction's header stays empty, as in etcd.
                    response.header = Some(ResponseHeader::default());
                    current = around;
                    current.responses.push(ResponseOp {
                        response: Some(Response::ResponseTxn(response)),
                    });
                }
            }
        }
    }
}

/// A transaction during execution.
struct Running<'a> {
    succeeded: bool,
    ops: Ops<'a>,
    responses: Vec<ResponseOp>,
}

impl<'a> Running<'a> {
    fn start(txn: &'a TxnRequest, succeeded: bool) -> Self {
        let ops = branch(txn, succeeded).iter();
        Self {
            succeeded,
            responses: Vec::with_capacity(ops.len()),
            ops,
        }
    }

    fn finish(self) -> TxnResponse {
        TxnResponse {
            header: None,
            succeeded: self.succeeded,
            responses: self.responses,
        }
    }
}

/// Executes an operation other than a nested transaction.
fn execute_op(
    view: &mut impl WriteView,
    request: &Request,
    ranges: RangeResults,
) -> Result<Option<Response>, ReadError> {
    Ok(match request {
        Request::RequestRange(range) => Some(Response::ResponseRange(match ranges {
            RangeResults::Wanted => range::evaluate(view, range, Counting::All)?,
            RangeResults::Unwanted => RangeResponse {
                header: Some(header(view.revision())),
                ..RangeResponse::default()
            },
        })),
        Request::RequestPut(put) => Some(Response::ResponsePut(execute_put(view, put)?)),
        Request::RequestDeleteRange(delete) => {
            Some(Response::ResponseDeleteRange(execute_delete(view, delete)?))
        }
        Request::RequestTxn(_) => None,
    })
}

/// The keys that the transaction deletes before the operation being checked.
///
/// A put that keeps the value or the lease of its key needs the key. etcd looks
/// it up only before the transaction, and all members panic if the transaction
/// itself deletes it first; a delete with an open end is not found by the check
/// for duplicate keys. Here the whole transaction is refused.
#[derive(Default)]
struct DeletedKeys {
    /// In order; a later put creates its key again.
    changes: Vec<KeyChange>,
}

enum KeyChange {
    Deleted(KeyRange),
    Put(Bytes),
}

impl DeletedKeys {
    fn delete(&mut self, delete: &DeleteRangeRequest) {
        let range = KeyRange::new(&delete.key, &delete.range_end);
        self.changes.push(KeyChange::Deleted(range));
    }

    fn check_put(&mut self, put: &PutRequest) -> Result<(), EtcdError> {
        // The usual case: nothing was deleted.
        if self.changes.is_empty() {
            return Ok(());
        }
        let last = self.changes.iter().rev().find(|change| match change {
            KeyChange::Deleted(range) => range.contains(&put.key),
            KeyChange::Put(key) => *key == put.key,
        });
        let is_deleted = matches!(last, Some(KeyChange::Deleted(_)));
        if is_deleted && (put.ignore_value || put.ignore_lease) {
            return Err(EtcdError::KeyNotFound);
        }
        if is_deleted {
            self.changes.push(KeyChange::Put(put.key.clone()));
        }
        Ok(())
    }
}

/// Checks a put that stands alone or on a taken path.
pub fn check_put(
    view: &impl KeyView,
    leases: &dyn LeaseLookup,
    put: &PutRequest,
) -> Result<(), ReadError> {
    let lease = LeaseId(put.lease);
    if lease != LeaseId::NONE && !leases.exists(lease) {
        return Err(EtcdError::LeaseNotFound.into());
    }
    if (put.ignore_value || put.ignore_lease) && view.get(&put.key, false)?.is_none() {
        return Err(EtcdError::KeyNotFound.into());
    }
    Ok(())
}

/// Runs a checked put.
pub fn execute_put(view: &mut impl WriteView, put: &PutRequest) -> Result<PutResponse, ReadError> {
    let previous = match put.prev_kv || put.ignore_value || put.ignore_lease {
        true => view.get(&put.key, put.prev_kv || put.ignore_value)?,
        false => None,
    };
    let value = match &previous {
        Some(previous) if put.ignore_value => previous.value.clone(),
        _ => put.value.clone(),
    };
    let lease = match &previous {
        Some(previous) if put.ignore_lease => previous.lease,
        _ => put.lease,
    };
    view.put(&put.key, value, LeaseId(lease));
    Ok(PutResponse {
        header: Some(header(view.revision())),
        prev_kv: previous.filter(|_| put.prev_kv),
    })
}

/// Runs a delete. There is nothing to check before it.
pub fn execute_delete(
    view: &mut impl WriteView,
    delete: &DeleteRangeRequest,
) -> Result<DeleteRangeResponse, ReadError> {
    let range = KeyRange::new(&delete.key, &delete.range_end);
    let mut prev_kvs = Vec::new();
    if delete.prev_kv {
        let mut copies = Copies::default();
        view.visit(&range, view.revision(), |entry| {
            prev_kvs.push(entry.key_value(true, &mut copies)?);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let deleted = view.delete(&range);
    Ok(DeleteRangeResponse {
        header: Some(header(view.revision())),
        deleted,
        prev_kvs,
    })
}

/// Answers a transaction that only reads; see [`is_read_only`].
pub fn read(view: &impl KeyView, txn: &TxnRequest) -> Result<TxnResponse, ReadError> {
    let path = Path::choose(view, txn)?;
    path.check(view, &|_| false, txn)?;
    let succeeded = path.outcomes()();
    let mut responses = Vec::new();
    for op in branch(txn, succeeded) {
        if let Some(Request::RequestRange(range)) = &op.request {
            let response = range::evaluate(view, range, Counting::All)?;
            let response = Some(Response::ResponseRange(response));
            responses.push(ResponseOp { response });
        }
    }
    Ok(TxnResponse {
        header: Some(header(view.revision())),
        succeeded,
        responses,
    })
}

/// Whether a transaction only reads, so that it need not go through the log. A
/// nested transaction always counts as a write.
#[must_use]
pub fn is_read_only(txn: &TxnRequest) -> bool {
    txn.success
        .iter()
        .chain(&txn.failure)
        .all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

/// Whether all its ranges are serializable. True of a transaction without operations.
#[must_use]
pub fn is_serializable(txn: &TxnRequest) -> bool {
    txn.success
        .iter()
        .chain(&txn.failure)
        .all(|op| matches!(&op.request, Some(Request::RequestRange(range)) if range.serializable))
}

/// Builds a header with only the revision; the server fills in the rest.
pub(crate) fn header(revision: i64) -> ResponseHeader {
    ResponseHeader {
        revision,
        ..ResponseHeader::default()
    }
}

fn branch(txn: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded {
        &txn.success
    } else {
        &txn.failure
    }
}

/// Checks the revision of a range on the taken path. Unlike in a single range
/// request, a negative revision is compared literally.
fn check_range(view: &impl KeyView, range: &RangeRequest) -> Result<(), EtcdError> {
    match range.revision {
        0 => Ok(()),
        revision if revision > view.revision() => Err(EtcdError::FutureRevision),
        revision if revision < view.compact_revision() => Err(EtcdError::Compacted),
        _ => Ok(()),
    }
}

fn holds(view: &impl KeyView, compare: &Compare) -> Result<bool, ReadError> {
    let range = KeyRange::new(&compare.key, &compare.range_end);
    let needs_value = compare.target == CompareTarget::Value as i32;
    let mut any = false;
    let mut all_hold = true;
    let mut copies = Copies::default();
    view.visit(&range, view.revision(), |entry| {
        any = true;
        all_hold = compare_holds(compare, &entry.key_value(needs_value, &mut copies)?);
        Ok(match all_hold {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    Ok(match any {
        true => all_hold,
        // A missing key compares as zeros, but a value compare fails.
        false => !needs_value && compare_holds(compare, &KeyValue::default()),
    })
}

fn compare_holds(compare: &Compare, kv: &KeyValue) -> bool {
    // An operand of another kind than the target counts as absent, as in etcd.
    let ordering = match (
        CompareTarget::try_from(compare.target),
        &compare.target_union,
    ) {
        (Ok(CompareTarget::Version), union) => kv.version.cmp(match union {
            Some(TargetUnion::Version(version)) => version,
            _ => &0,
        }),
        (Ok(CompareTarget::Create), union) => kv.create_revision.cmp(match union {
            Some(TargetUnion::CreateRevision(revision)) => revision,
            _ => &0,
        }),
        (Ok(CompareTarget::Mod), union) => kv.mod_revision.cmp(match union {
            Some(TargetUnion::ModRevision(revision)) => revision,
            _ => &0,
        }),
        (Ok(CompareTarget::Lease), union) => kv.lease.cmp(match union {
            Some(TargetUnion::Lease(lease)) => lease,
            _ => &0,
        }),
        (Ok(CompareTarget::Value), Some(TargetUnion::Value(value))) => kv.value.cmp(value),
        (Ok(CompareTarget::Value), _) => kv.value.cmp(&Bytes::new()),
        (Err(_), _) => std::cmp::Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        Err(_) => true,
    }
}
