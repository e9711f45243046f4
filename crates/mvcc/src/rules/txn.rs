//! Transactions: choose, check, execute.
//!
//! All compares of the whole tree are decided against the state before the
//! transaction; then every operation on the chosen path is checked; only then
//! anything changes. So a refused transaction leaves no trace and an accepted
//! one cannot fail half-way.

use std::ops::ControlFlow;

use bytes::Bytes;
use portunus_proto::{
    EtcdError,
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
    lease::{LeaseLookup, NO_LEASE},
    range::{self, Counting, KeyRange},
    view::{Copies, KeyView},
};
use crate::error::ReadError;

/// Whether ranges inside a transaction are executed. A member that answers
/// nobody skips them after they were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeResults {
    /// Someone waits for them.
    Wanted,
    /// Nobody does; the answers hold only their revision.
    Unwanted,
}

/// State that can be changed. Reads see the changes made before them, and
/// [`KeyView::revision`] is one higher from the first change on.
pub trait WriteView: KeyView {
    /// Writes a key.
    fn put(&mut self, key: &Bytes, value: Bytes, lease: i64);

    /// Removes every key of the range in key order and says how many.
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

/// Operations of a branch that are still to be looked at.
type Ops<'a> = std::slice::Iter<'a, RequestOp>;

impl Path {
    /// Decides all compares on the way.
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

    /// The outcomes in the order in which a walk along the path comes to transactions.
    fn outcomes(&self) -> impl FnMut() -> bool {
        let mut succeeded = self.succeeded.iter();
        // There is one for every transaction on the path.
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
        let mut gone = Gone::default();
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
                    gone.check_put(put)?;
                }
                Some(Request::RequestTxn(txn)) => levels.push(branch(txn, next_outcome()).iter()),
                Some(Request::RequestDeleteRange(delete)) => gone.delete(delete),
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
                    // An inner transaction's header stays empty: only the outermost
                    // one knows the final revision.
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

/// A transaction of which some operations were executed.
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

/// Runs an operation that is no transaction.
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

/// What a transaction will have deleted when it comes to an operation.
///
/// A put that keeps the value or the lease of its key needs the key. etcd looks
/// for it before the transaction only, and stops all members if the transaction
/// itself deletes it first; a delete without an end gets past the check for
/// keys that are changed twice. Here the whole transaction is refused.
#[derive(Default)]
struct Gone {
    /// In order; a later put brings its key back.
    changes: Vec<GoneChange>,
}

enum GoneChange {
    Deleted(KeyRange),
    Put(Bytes),
}

impl Gone {
    fn delete(&mut self, delete: &DeleteRangeRequest) {
        let range = KeyRange::new(&delete.key, &delete.range_end);
        self.changes.push(GoneChange::Deleted(range));
    }

    fn check_put(&mut self, put: &PutRequest) -> Result<(), EtcdError> {
        // Nearly always: nothing was deleted.
        if self.changes.is_empty() {
            return Ok(());
        }
        let last = self.changes.iter().rev().find(|change| match change {
            GoneChange::Deleted(range) => range.contains(&put.key),
            GoneChange::Put(key) => *key == put.key,
        });
        let is_gone = matches!(last, Some(GoneChange::Deleted(_)));
        if is_gone && (put.ignore_value || put.ignore_lease) {
            return Err(EtcdError::KeyNotFound);
        }
        if is_gone {
            self.changes.push(GoneChange::Put(put.key.clone()));
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
    if put.lease != NO_LEASE && !leases.exists(put.lease) {
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
    view.put(&put.key, value, lease);
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

/// Whether a transaction only reads, so that it need not go through the log.
/// A nested transaction counts as a write whatever it holds.
#[must_use]
pub fn is_read_only(txn: &TxnRequest) -> bool {
    txn.success
        .iter()
        .chain(&txn.failure)
        .all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

/// Whether all it does may be answered from local state. True of a transaction
/// without operations.
#[must_use]
pub fn is_serializable(txn: &TxnRequest) -> bool {
    txn.success
        .iter()
        .chain(&txn.failure)
        .all(|op| matches!(&op.request, Some(Request::RequestRange(range)) if range.serializable))
}

/// A header that carries only the revision; the caller knows the rest.
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

/// Bounds of a range on a taken path. Unlike a range that stands alone, a
/// negative revision is compared as it is.
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
        // A missing key is all zeros, but it has no value to compare with.
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
