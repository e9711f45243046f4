//! The Maintenance service: status, alarms, hashes, defragmentation, snapshots, downgrades.

use std::pin::Pin;

use portunus_auth::AuthState;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::MemberId;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::alarm_request::AlarmAction;
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;
use portunus_proto::etcdserverpb::maintenance_server::Maintenance;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse, DowngradeInfo,
    DowngradeRequest, DowngradeResponse, FeatureGateStatusRequest, FeatureGateStatusResponse,
    HashKvRequest, HashKvResponse, HashRequest, HashResponse, InternalRaftRequest,
    MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest, SnapshotResponse, StatusRequest,
    StatusResponse,
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;

use super::access::Rpc;
use super::kv::unexpected;
use super::{Api, Kind};
use crate::handles::hashing::HashError;
use crate::member::downgrade::DowngradeError;
use portunus_features::StopGRPCServiceOnDefrag;
use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_statemachine as statemachine;

type Blobs = Pin<Box<dyn Stream<Item = Result<SnapshotResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Maintenance for Api {
    async fn alarm(
        &self,
        request: Request<AlarmRequest>,
    ) -> Result<Response<AlarmResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let (metadata, extensions, alarm) = request.into_parts();
        let permit = self.authorize(Rpc::Alarm, &metadata, &extensions).await?;
        let check = match alarm.action == AlarmAction::Get as i32 {
            true => AuthState::check_authenticated,
            false => AuthState::check_admin,
        };
        let permit = self.permit(permit.caller, check).await?;
        let request = InternalRaftRequest {
            alarm: Some(alarm),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required, &permit).await? {
            statemachine::Response::Alarm(mut response) => {
                self.member.store.complete(&mut response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let required = self.check_metadata_for_learners(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::Status, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let member = &self.member;
        let raft = member.consensus.status();
        let sizes = member.store.reader().sizes();
        let membership = member.cluster.membership();
        let mut errors = Vec::new();
        if raft.leader == MemberId::NONE {
            errors.push(EtcdError::NoLeader.text().to_owned());
            if let Some(since) = member.cluster.leadership.leaderless_since() {
                errors.push(format!("no leader for {}s", since.elapsed().as_secs()));
            }
        }
        for alarm in member.cluster.alarms().list(AlarmType::None as i32) {
            let kind = AlarmType::try_from(alarm.alarm).unwrap_or(AlarmType::None);
            errors.push(format!(
                "memberID:{} alarm:{} ",
                alarm.member_id,
                kind.as_str_name()
            ));
        }
        let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Ok(Response::new(StatusResponse {
            header: Some(member.store.newest_header()),
            version: portunus_features::version::version_text(&member.process.config.version),
            db_size: bytes(sizes.total_bytes),
            leader: raft.leader.0,
            raft_index: raft.commit,
            raft_term: raft.term.0,
            raft_applied_index: member.store.applied.index().0,
            errors,
            db_size_in_use: bytes(sizes.in_use_bytes),
            is_learner: raft.is_learner,
            storage_version: membership
                .cluster_version
                .map_or_else(String::new, |version| format!("{version}.0")),
            db_size_quota: member.process.config.quota_bytes.map_or(0, bytes),
            downgrade_info: Some(DowngradeInfo {
                enabled: membership.downgrade.enabled,
                target_version: membership.downgrade.target_version.clone(),
            }),
        }))
    }

    async fn defragment(
        &self,
        request: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::Defragment, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let reader = self.member.store.reader().clone();
        let started = std::time::Instant::now();
        let before = reader.sizes();
        let stops_serving = self.member.process.gates.enabled(StopGRPCServiceOnDefrag);
        if stops_serving {
            self.member
                .process
                .health
                .set_service_status("", ServingStatus::NotServing)
                .await;
        }
        let done = tokio::task::spawn_blocking(move || reader.defragment()).await;
        if stops_serving {
            self.member
                .process
                .health
                .set_service_status("", ServingStatus::Serving)
                .await;
        }
        match done {
            Ok(Ok(())) => {
                let after = self.member.store.reader().sizes();
                tracing::info!(
                    before_bytes = before.total_bytes,
                    after_bytes = after.total_bytes,
                    took_ms = started.elapsed().as_millis() as u64,
                    "defragmented"
                );
                // etcd sends no header either.
                Ok(Response::new(DefragmentResponse { header: None }))
            }
            Ok(Err(error)) => Err(Status::unknown(error.to_string())),
            Err(error) => Err(Status::internal(error.to_string())),
        }
    }

    async fn hash(&self, request: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::Hash, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let reader = self.member.store.reader().clone();
        let seconds = self.member.process.metrics.hash_seconds.clone();
        let slots = &self.member.store.client_hashes;
        let hashed = slots.run(move || seconds.observe_closure_duration(|| reader.hash()));
        let (hash, revision) = hashed.await.map_err(|error| self.hash_failed(error))?;
        Ok(Response::new(HashResponse {
            header: Some(self.member.store.header(revision)),
            hash,
        }))
    }

    async fn hash_kv(
        &self,
        request: Request<HashKvRequest>,
    ) -> Result<Response<HashKvResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::HashKv, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let reader = self.member.store.reader().clone();
        let revision = request.into_inner().revision;
        let seconds = self.member.process.metrics.hash_revision_seconds.clone();
        let hashed = self.member.store.client_hashes.run(move || {
            let hash = seconds.observe_closure_duration(|| reader.hash_kv(revision))?;
            // From the same reader: a snapshot of the leader may have replaced the store
            // meanwhile.
            Ok((hash, reader.revision()))
        });
        let (hash, revision) = hashed.await.map_err(|error| self.hash_failed(error))?;
        Ok(Response::new(HashKvResponse {
            header: Some(self.member.store.header(revision)),
            hash: hash.hash,
            compact_revision: hash.compact_revision,
            hash_revision: hash.revision,
        }))
    }

    type SnapshotStream = Blobs;

    async fn snapshot(&self, request: Request<SnapshotRequest>) -> Result<Response<Blobs>, Status> {
        let required = self.check_metadata_for_learners(Kind::Stream, request.metadata())?;
        let permit = self.authorize(Rpc::Snapshot, request.metadata(), request.extensions());
        let permit = permit.await?;
        self.check_required(&required)?;
        let blobs = self.snapshot_blobs()?;
        let blobs = self.while_permitted(Rpc::Snapshot, permit, blobs);
        Ok(Response::new(Box::pin(blobs)))
    }

    async fn move_leader(
        &self,
        request: Request<MoveLeaderRequest>,
    ) -> Result<Response<MoveLeaderResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::MoveLeader, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let moved = self
            .member
            .move_leader(request.into_inner().target_id)
            .await;
        moved.map_err(|error| self.refuse(error))?;
        // etcd sends no header either.
        Ok(Response::new(MoveLeaderResponse { header: None }))
    }

    async fn downgrade(
        &self,
        request: Request<DowngradeRequest>,
    ) -> Result<Response<DowngradeResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::Downgrade, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let request = request.into_inner();
        let member = &self.member;
        let current = match request.action() {
            DowngradeAction::Validate => {
                let validated = member.validate_downgrade(&request.version).await;
                validated.map_err(|error| self.refuse(error))?
            }
            DowngradeAction::Enable => {
                let enabled = member.enable_downgrade(&request.version).await;
                enabled.map_err(|error| match error {
                    DowngradeError::Etcd(error) => self.refuse(error),
                    other => Status::failed_precondition(other.to_string()),
                })?
            }
            DowngradeAction::Cancel => {
                let cancelled = self.cancel_downgrade().await;
                cancelled.map_err(|error| self.refuse(error))?
            }
        };
        Ok(Response::new(DowngradeResponse {
            version: current.to_string(),
            header: Some(
                self.member
                    .store
                    .header(self.member.store.reader().revision()),
            ),
        }))
    }

    async fn feature_gate_status(
        &self,
        request: Request<FeatureGateStatusRequest>,
    ) -> Result<Response<FeatureGateStatusResponse>, Status> {
        self.check_method(
            CLUSTER_PARAMS_SINCE,
            "etcdserverpb.Maintenance",
            "FeatureGateStatus",
        )?;
        let required = self.check_metadata_for_learners(Kind::Unary, request.metadata())?;
        let permit = self.authorize(
            Rpc::FeatureGateStatus,
            request.metadata(),
            request.extensions(),
        );
        permit.await?;
        self.check_required(&required)?;
        let response = self.gate_status(request.into_inner()).await?;
        Ok(Response::new(response))
    }
}

impl Api {
    fn hash_failed(&self, error: HashError) -> Status {
        match error {
            HashError::Read(error) => self.read_failed(error),
            HashError::TooMany => Status::resource_exhausted(error.to_string()),
            HashError::Thread(error) => Status::internal(error.to_string()),
        }
    }

    /// Cancels a downgrade. Without one it succeeds, as in etcd; unlike etcd, it fails if the
    /// proposal fails.
    async fn cancel_downgrade(&self) -> Result<MajorMinor, EtcdError> {
        self.member.store.linearizable().await?;
        let membership = self.member.cluster.membership_full();
        if membership.downgrade.enabled {
            self.member.set_downgrade(None).await?;
        }
        membership
            .cluster_version
            .ok_or(EtcdError::ClusterVersionUnavailable)
    }
}
