//! Validation of requests by the API layer before anything is proposed.
//!
//! Only the member that receives the request runs these checks, so every entry
//! in the log has passed them on some member. They use the request alone, never
//! state.

use std::collections::{BTreeMap, HashSet};

use portunus_proto::{
    EtcdError,
    etcdserverpb::{
        DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        range_request::{SortOrder, SortTarget},
        request_op::Request,
    },
};

use super::branches::{Outcomes, fold};
use super::range::{has_revision_filters, is_default_order};

/// Default limit on the operations of a transaction.
pub const TXN_OPS_MAX: usize = 128;

/// Limit on the depth of nested transactions; an empty innermost one is not counted. etcd 3.7 and
/// 3.8 decode ten thousand nested messages; each level is two, and the log entry adds one. An entry
/// that another member cannot decode must not enter the log.
pub const TXN_DEPTH_MAX: usize = 4999;

/// Checks a range.
pub fn range(request: &RangeRequest) -> Result<(), EtcdError> {
    if request.key.is_empty() {
        return Err(EtcdError::EmptyKey);
    }
    let known = SortOrder::try_from(request.sort_order).is_ok()
        && SortTarget::try_from(request.sort_target).is_ok();
    if !known {
        return Err(EtcdError::InvalidSortOption);
    }
    Ok(())
}

/// Checks a range whose answer is streamed.
pub fn range_stream(request: &RangeRequest) -> Result<(), EtcdError> {
    range(request)?;
    if !is_default_order(request.sort_target(), request.sort_order()) {
        return Err(EtcdError::RangeStreamSort);
    }
    if has_revision_filters(request) {
        return Err(EtcdError::RangeStreamRevisionFilter);
    }
    Ok(())
}

/// Checks a put.
pub fn put(request: &PutRequest) -> Result<(), EtcdError> {
    if request.key.is_empty() {
        return Err(EtcdError::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(EtcdError::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(EtcdError::LeaseProvided);
    }
    Ok(())
}

/// Checks a delete.
pub fn delete_range(request: &DeleteRangeRequest) -> Result<(), EtcdError> {
    if request.key.is_empty() {
        return Err(EtcdError::EmptyKey);
    }
    Ok(())
}

/// Checks a transaction: each operation, their number, and that no branch
/// changes a key twice.
pub fn txn(request: &TxnRequest, ops_max: usize) -> Result<(), EtcdError> {
    txn_ops(request, ops_max, TXN_DEPTH_MAX)?;
    changed_keys(&request.success)?;
    changed_keys(&request.failure)?;
    Ok(())
}

/// The limits left for the transactions nested in a transaction.
struct Budget<'a> {
    ops: std::iter::Chain<std::slice::Iter<'a, RequestOp>, std::slice::Iter<'a, RequestOp>>,
    ops_max: usize,
    depth_max: usize,
}

fn txn_ops(request: &TxnRequest, ops_max: usize, depth_max: usize) -> Result<(), EtcdError> {
    let mut levels = vec![Budget::of(request, ops_max, depth_max)?];
    while let Some(level) = levels.last_mut() {
        let Some(op) = level.ops.next() else {
            levels.pop();
            continue;
        };
        match &op.request {
            Some(Request::RequestRange(request)) => range(request)?,
            Some(Request::RequestPut(request)) => put(request)?,
            Some(Request::RequestDeleteRange(request)) => delete_range(request)?,
            Some(Request::RequestTxn(request)) => {
                let inner = Budget::of(request, level.ops_max, level.depth_max)?;
                levels.push(inner);
            }
            None => return Err(EtcdError::KeyNotFound),
        }
    }
    Ok(())
}

impl<'a> Budget<'a> {
    /// Checks a transaction against the limits left for it.
    fn of(request: &'a TxnRequest, ops_max: usize, depth_max: usize) -> Result<Self, EtcdError> {
        let ops = request
            .compare
            .len()
            .max(request.success.len())
            .max(request.failure.len());
        let ops_max = ops_max.checked_sub(ops).ok_or(EtcdError::TooManyOps)?;
        // The depth counts as operations do: each level needs one.
        let depth_max = depth_max
            .checked_sub(ops.min(1))
            .ok_or(EtcdError::TooManyOps)?;
        if request.compare.iter().any(|compare| compare.key.is_empty()) {
            return Err(EtcdError::EmptyKey);
        }
        Ok(Self {
            ops: request.success.iter().chain(&request.failure),
            ops_max,
            depth_max,
        })
    }
}

/// The keys a branch puts and deletes, for the enclosing branch.
#[derive(Default)]
struct Changed<'a> {
    puts: HashSet<&'a [u8]>,
    deletes: Intervals<'a>,
}

/// Refuses a key that is put twice, or put and deleted.
fn changed_keys(ops: &[RequestOp]) -> Result<Changed<'_>, EtcdError> {
    fold(ops, Changed::of)
}

impl<'a> Changed<'a> {
    /// Collects the changes of a branch, given those of both branches of each nested transaction.
    ///
    /// The order of the steps is visible: a put in a nested transaction collides
    /// with deletes beside it and with those of nested transactions before it, not
    /// with those after.
    fn of(ops: &'a [RequestOp], nested: Vec<Outcomes<Self>>) -> Result<Self, EtcdError> {
        let mut changed = Changed::default();
        for op in ops {
            if let Some(Request::RequestDeleteRange(delete)) = &op.request {
                changed.deletes.insert(&delete.key, &delete.range_end);
            }
        }
        for Outcomes { success, failure } in nested {
            // Both branches are checked against the changes before: only one of
            // them runs, so they may share keys.
            changed.refuse(&success.puts)?;
            changed.refuse(&failure.puts)?;
            changed.add_puts(success.puts);
            changed.add_puts(failure.puts);
            changed.deletes.merge(success.deletes);
            changed.deletes.merge(failure.deletes);
        }
        for op in ops {
            if let Some(Request::RequestPut(put)) = &op.request {
                let key = &put.key[..];
                if changed.deletes.contains(key) || !changed.puts.insert(key) {
                    return Err(EtcdError::DuplicateKey);
                }
            }
        }
        Ok(changed)
    }

    /// Moves the smaller set into the larger, so that a large set is not copied at each level.
    fn add_puts(&mut self, mut puts: HashSet<&'a [u8]>) {
        if puts.len() > self.puts.len() {
            std::mem::swap(&mut self.puts, &mut puts);
        }
        self.puts.extend(puts);
    }

    fn refuse(&self, puts: &HashSet<&[u8]>) -> Result<(), EtcdError> {
        let collides = |key: &&[u8]| self.deletes.contains(key) || self.puts.contains(key);
        match puts.iter().any(collides) {
            true => Err(EtcdError::DuplicateKey),
            false => Ok(()),
        }
    }
}

/// Intervals of keys that do not overlap.
#[derive(Default)]
struct Intervals<'a> {
    /// Start to end.
    spans: BTreeMap<&'a [u8], End<'a>>,
}

/// The end of an interval.
#[derive(Clone, Copy)]
enum End<'a> {
    /// After this one key, its start.
    Point,
    Before(&'a [u8]),
}

impl<'a> Intervals<'a> {
    /// Adds the range of a delete. An open end (`\0`) or an end before the
    /// start adds nothing: etcd compares the end as ordinary bytes here, and so
    /// never finds a key inside.
    fn insert(&mut self, key: &'a [u8], range_end: &'a [u8]) {
        match range_end {
            [] => self.insert_span(key, End::Point),
            end if key < end => self.insert_span(key, End::Before(end)),
            _ => {}
        }
    }

    fn insert_span(&mut self, mut start: &'a [u8], end: End<'a>) {
        let End::Before(mut end) = end else {
            if !self.contains(start) {
                self.spans.insert(start, End::Point);
            }
            return;
        };
        // Merge the span this one begins in, then all that begin inside it.
        if let Some((&before, &End::Before(before_end))) = self.spans.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&inner, &inner_end)) = self.spans.range(start..end).next() {
            if let End::Before(inner_end) = inner_end {
                end = end.max(inner_end);
            }
            self.spans.remove(inner);
        }
        self.spans.insert(start, End::Before(end));
    }

    fn merge(&mut self, mut other: Self) {
        if other.spans.len() > self.spans.len() {
            std::mem::swap(&mut self.spans, &mut other.spans);
        }
        for (start, end) in other.spans {
            self.insert_span(start, end);
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.spans
            .range(..=key)
            .next_back()
            .is_some_and(|(&start, end)| match end {
                End::Point => start == key,
                End::Before(end) => key < *end,
            })
    }
}
