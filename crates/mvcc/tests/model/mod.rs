//! A model of the store: a list of changes, slow and simple.
//!
//! Written from the specification alone, without code of the crate, so that an
//! error in one of them shows as a difference.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use portunus_proto::{
    EtcdError,
    etcdserverpb::{
        CompactionResponse, Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp,
        TxnRequest, TxnResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        range_request::{SortOrder, SortTarget},
        request_op::Request,
        response_op::Response,
    },
    mvccpb::KeyValue,
};
use prost::Message;

/// One change of the history. `kv` is `None` for a delete.
#[derive(Debug, Clone)]
pub struct Change {
    pub main: i64,
    pub sub: i64,
    pub key: Bytes,
    pub kv: Option<KeyValue>,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub history: Vec<Change>,
    pub revision: i64,
    pub compact_revision: i64,
    pub leases: BTreeSet<i64>,
    /// The content of etcd's `key` bucket, with every compaction finished.
    pub bucket: BTreeMap<Vec<u8>, Vec<u8>>,
}

type State = BTreeMap<Bytes, KeyValue>;

pub fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..ResponseHeader::default()
    })
}

fn in_range(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        end => key >= start && key < end,
    }
}

impl Model {
    pub fn new() -> Self {
        Self {
            history: Vec::new(),
            revision: 1,
            compact_revision: -1,
            leases: BTreeSet::new(),
            bucket: BTreeMap::new(),
        }
    }

    pub fn state_at(&self, revision: i64) -> State {
        let mut state = State::new();
        for change in self.history.iter().filter(|c| c.main <= revision) {
            match &change.kv {
                Some(kv) => state.insert(change.key.clone(), kv.clone()),
                None => state.remove(&change.key),
            };
        }
        state
    }

    pub fn keys_of(&self, lease: i64) -> Vec<Bytes> {
        let state = self.state_at(self.revision);
        let attached = state.into_iter().filter(|(_, kv)| kv.lease == lease);
        attached.map(|(key, _)| key).collect()
    }

    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, EtcdError> {
        let mut revision = request.revision;
        if revision > self.revision {
            return Err(EtcdError::FutureRevision);
        }
        if revision <= 0 {
            revision = self.revision;
        }
        if revision < self.compact_revision {
            return Err(EtcdError::Compacted);
        }
        Ok(range_in(&self.state_at(revision), self.revision, request))
    }

    pub fn put(&mut self, request: &PutRequest) -> Result<PutResponse, EtcdError> {
        self.check_put(request)?;
        let mut txn = Working::new(self);
        let response = txn.put(request);
        txn.commit();
        Ok(response)
    }

    pub fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let mut txn = Working::new(self);
        let response = txn.delete(request);
        txn.commit();
        response
    }

    pub fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, EtcdError> {
        let before = self.state_at(self.revision);
        let mut there = before.keys().cloned().collect();
        self.check_txn(&before, &mut there, request)?;
        let mut txn = Working::new(self);
        let mut response = txn.txn(&before, request);
        response.header = header(txn.revision());
        txn.commit();
        Ok(response)
    }

    pub fn revoke(&mut self, lease: i64) {
        let keys = self.keys_of(lease);
        let mut txn = Working::new(self);
        for key in keys {
            txn.remove(key);
        }
        txn.commit();
        self.leases.remove(&lease);
    }

    pub fn compact(&mut self, revision: i64) -> Result<CompactionResponse, EtcdError> {
        if revision <= self.compact_revision {
            return Err(EtcdError::Compacted);
        }
        if revision > self.revision {
            return Err(EtcdError::FutureRevision);
        }
        let keep = self.keep(revision, true);
        self.bucket.retain(|key, _| {
            let (main, sub, _) = parse(key);
            main > revision || keep.contains(&(main, sub))
        });
        self.compact_revision = revision;
        Ok(CompactionResponse {
            header: header(self.revision),
        })
    }

    /// The hash of section 2.7 of the specification.
    pub fn hash_kv(&self, revision: i64) -> u32 {
        let keep = self.keep(revision, false);
        let mut crc = crc32c::crc32c(b"key");
        for (key, value) in &self.bucket {
            let (main, sub, tombstone) = parse(key);
            if main > revision {
                continue;
            }
            if main <= self.compact_revision && !keep.is_empty() && !keep.contains(&(main, sub)) {
                continue;
            }
            if main == self.compact_revision && tombstone {
                continue;
            }
            crc = crc32c::crc32c_append(crc, key);
            crc = crc32c::crc32c_append(crc, value);
        }
        crc
    }

    /// The hash the next compaction to `revision` computes.
    pub fn compaction_hash(&self, revision: i64) -> u32 {
        let keep = self.keep(revision, true);
        let mut crc = crc32c::crc32c(b"key");
        for (key, value) in &self.bucket {
            let (main, sub, tombstone) = parse(key);
            let skipped = main > revision
                || (main <= self.compact_revision
                    && !keep.is_empty()
                    && !keep.contains(&(main, sub)))
                || (main == self.compact_revision && tombstone);
            if !skipped {
                crc = crc32c::crc32c_append(crc, key);
                crc = crc32c::crc32c_append(crc, value);
            }
        }
        crc
    }

    /// keep(R) by generations, as in etcd's index.
    fn keep(&self, revision: i64, with_tombstones: bool) -> BTreeSet<(i64, i64)> {
        let mut by_key: BTreeMap<&Bytes, Vec<&Change>> = BTreeMap::new();
        for change in &self.history {
            by_key.entry(&change.key).or_default().push(change);
        }
        let mut keep = BTreeSet::new();
        for changes in by_key.values() {
            let mut generations: Vec<Vec<&Change>> = vec![Vec::new()];
            for &change in changes {
                generations.last_mut().unwrap().push(change);
                if change.kv.is_none() {
                    generations.push(Vec::new());
                }
            }
            let last = generations.len() - 1;
            // A transaction that deletes a key and writes it again makes two generations of one
            // revision. etcd uses the first. The model copies that for hashes, but not that etcd's
            // compaction loses the second.
            let is_rewritten = |g: usize, main: i64| {
                generations[g + 1]
                    .first()
                    .is_some_and(|next| next.main == main)
            };
            let chosen = (0..last)
                .find(|&g| {
                    let tombstone = generations[g].last().unwrap().main;
                    let is_passed_over = with_tombstones && is_rewritten(g, tombstone);
                    tombstone > revision || (tombstone == revision && !is_passed_over)
                })
                .unwrap_or(last);
            let newest = generations[chosen]
                .iter()
                .rev()
                .find(|c| c.main <= revision);
            if let Some(newest) = newest
                && (newest.kv.is_some() || with_tombstones)
            {
                keep.insert((newest.main, newest.sub));
            }
        }
        keep
    }

    fn check_put(&self, request: &PutRequest) -> Result<(), EtcdError> {
        if request.lease != 0 && !self.leases.contains(&request.lease) {
            return Err(EtcdError::LeaseNotFound);
        }
        let exists = self.state_at(self.revision).contains_key(&request.key);
        if (request.ignore_value || request.ignore_lease) && !exists {
            return Err(EtcdError::KeyNotFound);
        }
        Ok(())
    }

    /// `there` holds the keys that exist before the next operation.
    fn check_txn(
        &self,
        before: &State,
        there: &mut BTreeSet<Bytes>,
        request: &TxnRequest,
    ) -> Result<(), EtcdError> {
        for op in taken(before, request) {
            match op.request.as_ref().unwrap() {
                Request::RequestRange(range) if range.revision == 0 => {}
                Request::RequestRange(range) if range.revision > self.revision => {
                    return Err(EtcdError::FutureRevision);
                }
                Request::RequestRange(range) if range.revision < self.compact_revision => {
                    return Err(EtcdError::Compacted);
                }
                Request::RequestPut(put) => {
                    self.check_put(put)?;
                    let is_new = there.insert(put.key.clone());
                    if is_new && (put.ignore_value || put.ignore_lease) {
                        return Err(EtcdError::KeyNotFound);
                    }
                }
                Request::RequestDeleteRange(delete) => {
                    there.retain(|key| !in_range(key, &delete.key, &delete.range_end));
                }
                Request::RequestTxn(txn) => self.check_txn(before, there, txn)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn taken<'a>(before: &State, request: &'a TxnRequest) -> &'a [RequestOp] {
    match request.compare.iter().all(|compare| holds(before, compare)) {
        true => &request.success,
        false => &request.failure,
    }
}

fn holds(state: &State, compare: &Compare) -> bool {
    let found: Vec<&KeyValue> = state
        .values()
        .filter(|kv| in_range(&kv.key, &compare.key, &compare.range_end))
        .collect();
    if found.is_empty() {
        return compare.target() != CompareTarget::Value
            && compare_one(compare, &KeyValue::default());
    }
    found.iter().all(|kv| compare_one(compare, kv))
}

fn compare_one(compare: &Compare, kv: &KeyValue) -> bool {
    let ordering = match compare.target_union.as_ref().unwrap() {
        TargetUnion::Version(v) => kv.version.cmp(v),
        TargetUnion::CreateRevision(v) => kv.create_revision.cmp(v),
        TargetUnion::ModRevision(v) => kv.mod_revision.cmp(v),
        TargetUnion::Value(v) => kv.value.cmp(v),
        TargetUnion::Lease(v) => kv.lease.cmp(v),
    };
    match compare.result() {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
        CompareResult::NotEqual => ordering.is_ne(),
    }
}

fn range_in(state: &State, newest: i64, request: &RangeRequest) -> RangeResponse {
    let mut kvs: Vec<KeyValue> = state
        .values()
        .filter(|kv| in_range(&kv.key, &request.key, &request.range_end))
        .cloned()
        .collect();
    let count = kvs.len() as i64;
    if request.count_only {
        return RangeResponse {
            header: header(newest),
            count,
            ..RangeResponse::default()
        };
    }
    let target = request.sort_target();
    let mut order = request.sort_order();
    let default_order =
        order == SortOrder::None || (target == SortTarget::Key && order == SortOrder::Ascend);
    let filters = request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0;
    if request.limit > 0 && default_order && !filters {
        kvs.truncate(request.limit as usize + 1);
    }
    let within =
        |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    kvs.retain(|kv| {
        within(
            kv.mod_revision,
            request.min_mod_revision,
            request.max_mod_revision,
        ) && within(
            kv.create_revision,
            request.min_create_revision,
            request.max_create_revision,
        )
    });
    if order == SortOrder::None && target != SortTarget::Key {
        order = SortOrder::Ascend;
    }
    match target {
        SortTarget::Key => kvs.sort_by(|a, b| a.key.cmp(&b.key)),
        SortTarget::Version => kvs.sort_by_key(|kv| kv.version),
        SortTarget::Create => kvs.sort_by_key(|kv| kv.create_revision),
        SortTarget::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        SortTarget::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if order == SortOrder::Descend {
        // Ties stay in key order in both directions.
        let rank = |kv: &KeyValue| match target {
            SortTarget::Key => 0,
            SortTarget::Version => kv.version,
            SortTarget::Create => kv.create_revision,
            SortTarget::Mod => kv.mod_revision,
            SortTarget::Value => 0,
        };
        match target {
            SortTarget::Key => kvs.reverse(),
            SortTarget::Value => kvs.sort_by(|a, b| b.value.cmp(&a.value)),
            _ => kvs.sort_by_key(|kv| std::cmp::Reverse(rank(kv))),
        }
    }
    let more = request.limit > 0 && kvs.len() as i64 > request.limit;
    if more {
        kvs.truncate(request.limit as usize);
    }
    if request.keys_only {
        for kv in &mut kvs {
            kv.value = Bytes::new();
            if target != SortTarget::Value {
                kv.lease = 0;
            }
        }
    }
    RangeResponse {
        header: header(newest),
        kvs,
        more,
        count,
    }
}

/// A transaction during execution.
struct Working<'a> {
    model: &'a mut Model,
    state: State,
    changes: Vec<Change>,
}

impl<'a> Working<'a> {
    fn new(model: &'a mut Model) -> Self {
        Self {
            state: model.state_at(model.revision),
            model,
            changes: Vec::new(),
        }
    }

    fn revision(&self) -> i64 {
        self.model.revision + i64::from(!self.changes.is_empty())
    }

    fn record(&mut self, key: Bytes, kv: Option<KeyValue>) {
        let main = self.model.revision + 1;
        let sub = self.changes.len() as i64;
        self.changes.push(Change { main, sub, key, kv });
    }

    fn put(&mut self, request: &PutRequest) -> PutResponse {
        let previous = self.state.get(&request.key).cloned();
        let main = self.model.revision + 1;
        let kv = KeyValue {
            key: request.key.clone(),
            create_revision: previous.as_ref().map_or(main, |p| p.create_revision),
            mod_revision: main,
            version: previous.as_ref().map_or(0, |p| p.version) + 1,
            value: match &previous {
                Some(previous) if request.ignore_value => previous.value.clone(),
                _ => request.value.clone(),
            },
            lease: match &previous {
                Some(previous) if request.ignore_lease => previous.lease,
                _ => request.lease,
            },
        };
        self.state.insert(request.key.clone(), kv.clone());
        self.record(request.key.clone(), Some(kv));
        PutResponse {
            header: header(self.revision()),
            prev_kv: previous.filter(|_| request.prev_kv),
        }
    }

    fn remove(&mut self, key: Bytes) {
        self.state.remove(&key);
        self.record(key, None);
    }

    fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let doomed: Vec<KeyValue> = self
            .state
            .values()
            .filter(|kv| in_range(&kv.key, &request.key, &request.range_end))
            .cloned()
            .collect();
        for kv in &doomed {
            self.remove(kv.key.clone());
        }
        DeleteRangeResponse {
            header: header(self.revision()),
            deleted: doomed.len() as i64,
            prev_kvs: if request.prev_kv { doomed } else { Vec::new() },
        }
    }

    fn txn(&mut self, before: &State, request: &TxnRequest) -> TxnResponse {
        let succeeded = request.compare.iter().all(|compare| holds(before, compare));
        let mut responses = Vec::new();
        for op in taken(before, request) {
            let response = match op.request.as_ref().unwrap() {
                Request::RequestRange(range) => Response::ResponseRange(match range.revision {
                    ..=0 => range_in(&self.state, self.revision(), range),
                    revision => range_in(&self.model.state_at(revision), self.revision(), range),
                }),
                Request::RequestPut(put) => Response::ResponsePut(self.put(put)),
                Request::RequestDeleteRange(delete) => {
                    Response::ResponseDeleteRange(self.delete(delete))
                }
                Request::RequestTxn(txn) => Response::ResponseTxn(self.txn(before, txn)),
            };
            let response = Some(response);
            responses.push(ResponseOp { response });
        }
        TxnResponse {
            header: header(0),
            succeeded,
            responses,
        }
    }

    fn commit(self) {
        if self.changes.is_empty() {
            return;
        }
        self.model.revision += 1;
        for change in &self.changes {
            let mut key = change.main.to_be_bytes().to_vec();
            key.push(b'_');
            key.extend(change.sub.to_be_bytes());
            let value = match &change.kv {
                Some(kv) => kv.encode_to_vec(),
                None => {
                    key.push(b't');
                    KeyValue {
                        key: change.key.clone(),
                        ..KeyValue::default()
                    }
                    .encode_to_vec()
                }
            };
            self.model.bucket.insert(key, value);
        }
        self.model.history.extend(self.changes);
    }
}

fn parse(key: &[u8]) -> (i64, i64, bool) {
    let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
    (number(&key[..8]), number(&key[9..17]), key.len() == 18)
}
