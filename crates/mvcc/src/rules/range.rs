//! Key ranges and the evaluation of range requests.

use std::{
    cmp::Ordering,
    ops::{Bound, ControlFlow},
};

use bytes::Bytes;
use portunus_proto::{
    EtcdError,
    etcdserverpb::{
        RangeRequest, RangeResponse, ResponseHeader,
        range_request::{SortOrder, SortTarget},
    },
    mvccpb::KeyValue,
};

use super::view::{Copies, Entry, KeyView};
use crate::error::ReadError;

/// The `range_end` that means "every key from here on".
const FROM_KEY: &[u8] = &[0];

/// The keys of a request: one key, or an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    start: Bytes,
    end: End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Single,
    Before(Bytes),
    Open,
}

impl KeyRange {
    /// The keys selected by `key` and `range_end` of a request.
    #[must_use]
    pub fn new(key: &Bytes, range_end: &Bytes) -> Self {
        Self {
            start: key.clone(),
            end: match &range_end[..] {
                [] => End::Single,
                FROM_KEY => End::Open,
                _ => End::Before(range_end.clone()),
            },
        }
    }

    /// One key.
    #[must_use]
    pub fn single(key: Bytes) -> Self {
        Self {
            start: key,
            end: End::Single,
        }
    }

    /// Returns the key, if the range is a single key.
    #[must_use]
    pub fn as_single(&self) -> Option<&Bytes> {
        matches!(self.end, End::Single).then_some(&self.start)
    }

    /// Whether the range contains no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, End::Before(end) if *end <= self.start)
    }

    /// Whether the range contains the key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => *key == *self.start,
            End::Before(end) => *key >= *self.start && *key < **end,
            End::Open => *key >= *self.start,
        }
    }

    /// Returns the bounds for an ordered map. Not for an empty range: maps panic on it.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let end = match &self.end {
            End::Single => Bound::Included(&self.start[..]),
            End::Before(end) => Bound::Excluded(&end[..]),
            End::Open => Bound::Unbounded,
        };
        (Bound::Included(&self.start[..]), end)
    }
}

/// Whether the answer needs the number of all keys in the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// `count` is exact.
    All,
    /// `count` is the number of visited keys.
    UntilLimit,
}

/// Returns the revision of a read, or the refusal.
pub fn read_revision(requested: i64, newest: i64, compact_revision: i64) -> Result<i64, EtcdError> {
    if requested > newest {
        return Err(EtcdError::FutureRevision);
    }
    let revision = if requested <= 0 { newest } else { requested };
    if revision < compact_revision {
        return Err(EtcdError::Compacted);
    }
    Ok(revision)
}

/// Evaluates a range. The header carries only the revision.
pub fn evaluate(
    view: &impl KeyView,
    request: &RangeRequest,
    counting: Counting,
) -> Result<RangeResponse, ReadError> {
    let newest = view.revision();
    let revision = read_revision(request.revision, newest, view.compact_revision())?;
    let range = KeyRange::new(&request.key, &request.range_end);
    let plan = Plan::of(request);
    let mut kvs = Vec::new();
    let mut copies = Copies::default();
    let mut visited = 0;
    let mut reached_end = !plan.count_only;
    if !plan.count_only {
        view.visit(&range, revision, |entry| {
            visited += 1;
            if plan.passes(&entry) {
                kvs.push(entry.key_value(plan.with_values, &mut copies)?);
            }
            reached_end = kvs.len() < plan.collect_max;
            Ok(match reached_end {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
    }
    let count = match counting {
        Counting::All if !reached_end => view.count(&range, revision),
        _ => visited,
    };
    plan.sort(&mut kvs);
    let more = plan.limit.is_some_and(|limit| kvs.len() > limit);
    if let Some(limit) = plan.limit {
        kvs.truncate(limit);
    }
    if plan.drop_values {
        for kv in &mut kvs {
            kv.value = Bytes::new();
        }
    }
    if plan.drop_leases {
        for kv in &mut kvs {
            kv.lease = 0;
        }
    }
    Ok(RangeResponse {
        header: Some(ResponseHeader {
            revision: newest,
            ..ResponseHeader::default()
        }),
        kvs,
        more,
        count,
    })
}

/// Whether the requested order is key order.
#[must_use]
pub fn is_default_order(target: SortTarget, order: SortOrder) -> bool {
    order == SortOrder::None || (target == SortTarget::Key && order == SortOrder::Ascend)
}

/// Whether the request filters by revision.
#[must_use]
pub fn has_revision_filters(request: &RangeRequest) -> bool {
    request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0
}

/// The resolved options of a request.
struct Plan<'a> {
    request: &'a RangeRequest,
    count_only: bool,
    limit: Option<usize>,
    /// One above the limit, to detect more keys. Unbounded if sorting needs all.
    collect_max: usize,
    with_values: bool,
    drop_values: bool,
    drop_leases: bool,
    sort: Option<(SortTarget, SortOrder)>,
}

impl<'a> Plan<'a> {
    fn of(request: &'a RangeRequest) -> Self {
        let target = request.sort_target();
        let order = request.sort_order();
        let limit = usize::try_from(request.limit).ok().filter(|&l| l > 0);
        // A target without an order is sorted ascending, but only after the
        // limit was applied in key order: etcd's quirk, visible to clients.
        let effective_order = match order {
            SortOrder::None if target != SortTarget::Key => SortOrder::Ascend,
            order => order,
        };
        let sort =
            (!is_default_order(target, effective_order)).then_some((target, effective_order));
        let needs_all =
            !is_default_order(target, order) || (has_revision_filters(request) && sort.is_some());
        let by_value = target == SortTarget::Value;
        Self {
            request,
            count_only: request.count_only,
            limit,
            collect_max: match limit {
                Some(limit) if !needs_all => limit.saturating_add(1),
                _ => usize::MAX,
            },
            with_values: !request.keys_only || by_value,
            drop_values: request.keys_only,
            // etcd answers keys alone from its index, which holds no leases.
            drop_leases: request.keys_only && !by_value,
            sort,
        }
    }

    fn passes(&self, entry: &Entry<'_>) -> bool {
        let above = |bound: i64, revision: i64| bound != 0 && revision > bound;
        let below = |bound: i64, revision: i64| bound != 0 && revision < bound;
        let modified = entry.version.revision.main;
        let created = entry.version.create_revision;
        !(above(self.request.max_mod_revision, modified)
            || below(self.request.min_mod_revision, modified)
            || above(self.request.max_create_revision, created)
            || below(self.request.min_create_revision, created))
    }

    fn sort(&self, kvs: &mut [KeyValue]) {
        let Some((target, order)) = self.sort else {
            return;
        };
        let by = |a: &KeyValue, b: &KeyValue| -> Ordering {
            match target {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create_revision.cmp(&b.create_revision),
                SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
                SortTarget::Value => a.value.cmp(&b.value),
            }
        };
        match order {
            SortOrder::Descend => kvs.sort_by(|a, b| by(b, a)),
            SortOrder::None | SortOrder::Ascend => kvs.sort_by(by),
        }
    }
}
