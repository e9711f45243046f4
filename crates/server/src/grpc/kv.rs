//! The KV service.

use std::pin::Pin;
use std::time::Instant;

use bytes::Bytes;
use portunus_auth::{AuthState, Caller};
use portunus_gates::MajorMinor;
use portunus_mvcc::Reader;
use portunus_mvcc::rules::txn::{is_read_only, is_serializable};
use portunus_mvcc::rules::{quota, validate};
use portunus_proto::etcdserverpb::kv_server::Kv;
use portunus_proto::etcdserverpb::{
    AlarmType, CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse,
    InternalRaftRequest, PutRequest, PutResponse, RangeRequest, RangeResponse, RangeStreamResponse,
    TxnRequest, TxnResponse,
};
use portunus_proto::{EtcdError, LeaseId};
use prost::Message;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::access::Rpc;
use super::authorize::check_current;
use super::{Api, Kind, long_answer};
use crate::metrics::{Operation, OperationMetrics};
use portunus_statemachine as statemachine;

const RANGE_STREAM_SINCE: MajorMinor = MajorMinor::literal("3.7");
const KEYS_ONLY_FROM_INDEX_SINCE: MajorMinor = MajorMinor::literal("3.7");

type RangePieces = Pin<Box<dyn Stream<Item = Result<RangeStreamResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Kv for Api {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let required = match request.get_ref().serializable {
            true => self.check_metadata_for_learners(Kind::Unary, request.metadata())?,
            false => self.check_metadata(Kind::Unary, request.metadata())?,
        };
        let (metadata, extensions, mut request) = request.into_parts();
        validate::range(&request).map_err(|error| self.refuse(error))?;
        let without_values = self.keeps_leases_without_values() && request.keys_only;
        if without_values {
            request.keys_only = false;
        }
        let watch = self.time(Operation::Range);
        self.read_barrier(request.serializable).await?;
        let permit = self.authorize(Rpc::Range, &metadata, &extensions).await?;
        let check = |auth: &AuthState, caller: &Caller| {
            auth.check_range(caller, &request.key, &request.range_end)
        };
        let permit = self.permit(permit.caller, check).await?;
        let reader = self.reader_for(&permit, &required)?;
        let mut response = self.collect(&reader, &request)?;
        self.confirm(&permit, check)?;
        if without_values {
            for kv in &mut response.kvs {
                kv.value.clear();
            }
        }
        self.member.process.metrics.ranges.inc();
        self.member.store.complete(&mut response.header);
        watch.succeeded();
        let budget = &self.member.store.range_budget;
        long_answer::respond(response, budget).map_err(|refused| self.not_sent(refused))
    }

    type RangeStreamStream = RangePieces;

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangePieces>, Status> {
        self.check_method(RANGE_STREAM_SINCE, "etcdserverpb.KV", "RangeStream")?;
        let required = self.check_metadata(Kind::Stream, request.metadata())?;
        let (metadata, extensions, request) = request.into_parts();
        validate::range_stream(&request).map_err(|error| self.refuse(error))?;
        let piece_bytes = self.member.process.config.max_request_bytes;
        // One piece waits for the client at a time.
        let held = self.member.store.range_budget.take(piece_bytes);
        let held = held.ok_or_else(|| self.not_sent(long_answer::Refused::TooManyBytes))?;
        self.read_barrier(request.serializable).await?;
        let permit = self.authorize(Rpc::RangeStream, &metadata, &extensions);
        let permit = permit.await?;
        let (key, range_end) = (request.key.clone(), request.range_end.clone());
        let check =
            move |auth: &AuthState, caller: &Caller| auth.check_range(caller, &key, &range_end);
        let permit = self.permit(permit.caller, &check).await?;
        let reader = self.reader_for(&permit, &required)?;
        let mut pieces = reader
            .range_stream(&request, piece_bytes)
            .map_err(|error| self.refuse(error))?;
        let api = self.clone();
        let next = move || -> Option<Result<RangeStreamResponse, Status>> {
            let _held_with_the_stream = &held;
            Some(match pieces.next()? {
                Ok(mut piece) => {
                    if let Err(status) = api.confirm(&permit, &check) {
                        return Some(Err(status));
                    }
                    if piece.header.is_some() {
                        api.member.store.complete(&mut piece.header);
                    }
                    Ok(RangeStreamResponse {
                        range_response: Some(piece),
                    })
                }
                Err(error) => Err(api.read_failed(error)),
            })
        };
        Ok(Response::new(Box::pin(tokio_stream::iter(
            std::iter::from_fn(next),
        ))))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let (metadata, extensions, put) = request.into_parts();
        validate::put(&put).map_err(|error| self.refuse(error))?;
        self.member
            .proposals
            .check_quota(quota::put_cost_bytes(&put))
            .map_err(|e| self.refuse(e))?;
        let permit = self.authorize(Rpc::Put, &metadata, &extensions).await?;
        let check = |auth: &AuthState, caller: &Caller| {
            let checked = auth.check_put(caller, &put, &|lease| self.leased_keys(lease));
            checked.map_err(|refusal| self.alarm_or(quota::put_cost_bytes(&put), refusal))
        };
        let permit = self.permit(permit.caller, check).await?;
        let request = InternalRaftRequest {
            put: Some(put),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required, &permit).await? {
            statemachine::Response::Put(mut response) => {
                self.member.store.complete(&mut response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let (metadata, extensions, delete) = request.into_parts();
        validate::delete_range(&delete).map_err(|error| self.refuse(error))?;
        let permit = self.authorize(Rpc::DeleteRange, &metadata, &extensions);
        let permit = permit.await?;
        let check = |auth: &AuthState, caller: &Caller| {
            let checked = auth.check_delete_range(caller, &delete);
            checked.map_err(|refusal| self.alarm_or(0, refusal))
        };
        let permit = self.permit(permit.caller, check).await?;
        let request = InternalRaftRequest {
            delete_range: Some(delete),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required, &permit).await? {
            statemachine::Response::DeleteRange(mut response) => {
                self.member.store.complete(&mut response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let (metadata, extensions, txn) = request.into_parts();
        validate::txn(&txn, self.member.process.config.max_txn_ops).map_err(|e| self.refuse(e))?;
        let check = |auth: &AuthState, caller: &Caller| {
            auth.check_txn(caller, &txn, &|lease| self.leased_keys(lease))
        };
        if is_read_only(&txn) {
            let watch = self.time(Operation::ReadonlyTxn);
            self.read_barrier(is_serializable(&txn)).await?;
            let permit = self.authorize(Rpc::Txn, &metadata, &extensions).await?;
            let check = |auth: &AuthState, caller: &Caller| {
                check(auth, caller)?;
                check_current(auth, caller)
            };
            let permit = self.permit(permit.caller, check).await?;
            let reader = self.reader_for(&permit, &required)?;
            let read = reader.read_txn(&txn);
            let mut response = read.map_err(|error| self.read_failed(error))?;
            self.confirm(&permit, check)?;
            self.member.store.complete(&mut response.header);
            watch.succeeded();
            let message_bytes = response.encoded_len();
            let mut response = Response::new(response);
            let budget = &self.member.store.range_budget;
            let held = long_answer::hold(&mut response, message_bytes, budget);
            held.map_err(|refused| self.not_sent(refused))?;
            return Ok(response);
        }
        self.member
            .proposals
            .check_quota(quota::txn_cost_bytes(&txn))
            .map_err(|e| self.refuse(e))?;
        let permit = self.authorize(Rpc::Txn, &metadata, &extensions).await?;
        let check = |auth: &AuthState, caller: &Caller| {
            let refused = |refusal| self.alarm_or(quota::txn_cost_bytes(&txn), refusal);
            check(auth, caller).map_err(refused)
        };
        let permit = self.permit(permit.caller, check).await?;
        let request = InternalRaftRequest {
            txn: Some(txn),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required, &permit).await? {
            statemachine::Response::Txn(mut response) => {
                self.member.store.complete(&mut response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let (metadata, extensions, compaction) = request.into_parts();
        let permit = self.authorize(Rpc::Compact, &metadata, &extensions);
        let permit = permit.await?;
        let request = InternalRaftRequest {
            compaction: Some(compaction),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required, &permit).await? {
            statemachine::Response::Compaction(mut response) => {
                if compaction.physical {
                    let finished = self.member.store.compactions.finished(compaction.revision);
                    tokio::select! {
                        () = finished => {}
                        () = self.member.process.stop.stopped() => {
                            return Err(self.refuse(EtcdError::Stopped));
                        }
                    }
                }
                self.member.store.complete(&mut response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// Measures one request; it counts as failed unless [`Self::succeeded`] is called.
struct Stopwatch<'a> {
    metrics: &'a OperationMetrics,
    operation: Operation,
    started: Instant,
    is_success: bool,
}

impl Stopwatch<'_> {
    fn succeeded(mut self) {
        self.is_success = true;
    }
}

impl Drop for Stopwatch<'_> {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        self.metrics.answered(self.operation, self.is_success, took);
    }
}

impl Api {
    fn time(&self, operation: Operation) -> Stopwatch<'_> {
        Stopwatch {
            metrics: &self.member.process.metrics.operations,
            operation,
            started: Instant::now(),
            is_success: false,
        }
    }

    /// The status of an answer that is not sent.
    fn not_sent(&self, refused: long_answer::Refused) -> Status {
        match refused {
            long_answer::Refused::Oversized(status) => status,
            long_answer::Refused::TooManyBytes => {
                self.member.process.metrics.limits.refused_range_bytes.inc();
                // Not etcd's code for this text, which is `Unknown`: this limit is not etcd's.
                Status::resource_exhausted(EtcdError::TooManyRequests.text())
            }
        }
    }

    /// Reads a range and records its duration.
    fn collect(&self, reader: &Reader, request: &RangeRequest) -> Result<RangeResponse, Status> {
        let started = Instant::now();
        let ranged = reader.range(request);
        let metrics = &self.member.process.metrics.operations;
        metrics.ranged(ranged.is_ok(), started.elapsed());
        ranged.map_err(|error| self.read_failed(error))
    }

    /// Returns the refusal of a write that is not permitted. Like etcd, which checks permissions
    /// only when it applies a write, an alarm refuses it first.
    pub(super) fn alarm_or(&self, cost_bytes: u64, refusal: EtcdError) -> EtcdError {
        let alarms = self.member.cluster.alarms();
        if alarms.is_raised_by_any(AlarmType::Corrupt) {
            EtcdError::Corrupt
        } else if cost_bytes > 0 && alarms.is_raised_by_any(AlarmType::Nospace) {
            EtcdError::NoSpace
        } else {
            refusal
        }
    }

    /// The keys of a lease; none if it does not exist.
    pub(super) fn leased_keys(&self, lease: LeaseId) -> Vec<Bytes> {
        match self.member.leases.lock().exists(lease) {
            true => self.member.store.reader().keys_of(lease),
            false => Vec::new(),
        }
    }

    /// Before 3.7 a range with `keys_only` still returned the leases.
    fn keeps_leases_without_values(&self) -> bool {
        self.member.process.config.version.emulation() < KEYS_ONLY_FROM_INDEX_SINCE
    }
}

/// The error for a response of another kind than the request: another member used the same request
/// id, which ids of etcd's form allow. The response is not printed: it may be long and deep.
pub(super) fn unexpected(_: &statemachine::Response) -> Status {
    Status::internal("the response belongs to another request")
}
