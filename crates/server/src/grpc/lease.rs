//! The Lease service.

use std::pin::Pin;

use portunus_proto::etcdserverpb::lease_server::Lease;
use portunus_proto::etcdserverpb::{
    InternalRaftRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use portunus_proto::{EtcdError, LeaseId};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::kv::unexpected;
use super::oversized::in_words_of_go;
use super::{Api, Kind};
use portunus_features::FastLeaseKeepAlive;
use portunus_statemachine as statemachine;
use portunus_statemachine::LEASE_COST_BYTES;

type KeepAlives = Pin<Box<dyn Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Lease for Api {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let mut grant = request.into_inner();
        if LeaseId(grant.id) == LeaseId::NONE {
            // Positive, and unlikely to collide with an id that a client chooses.
            grant.id = i64::try_from(self.member.proposals.next_request_id() & i64::MAX as u64)
                .unwrap_or(i64::MAX);
        }
        self.member
            .proposals
            .check_quota(LEASE_COST_BYTES)
            .map_err(|error| self.refuse(error))?;
        let request = InternalRaftRequest {
            lease_grant: Some(grant),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required).await? {
            statemachine::Response::LeaseGrant(mut response) => {
                self.member.store.complete(&mut response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let request = InternalRaftRequest {
            lease_revoke: Some(request.into_inner()),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required).await? {
            statemachine::Response::LeaseRevoke(mut response) => {
                self.member.store.complete(&mut response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    type LeaseKeepAliveStream = KeepAlives;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<KeepAlives>, Status> {
        let required = self.check_metadata(Kind::Stream, request.metadata())?;
        let api = self.clone();
        let answers = request.into_inner().then(move |request| {
            let api = api.clone();
            let required = required.clone();
            async move {
                let request = request.map_err(in_words_of_go)?;
                api.check_required(&required)?;
                api.keep_alive(LeaseId(request.id)).await
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        self.check_metadata(Kind::Unary, request.metadata())?;
        let request = request.into_inner();
        let header = |api: &Api| {
            Some(
                api.member
                    .store
                    .header(api.member.store.reader().revision()),
            )
        };
        match self.member.time_to_live(&request).await {
            Ok(response) => Ok(Response::new(LeaseTimeToLiveResponse {
                header: header(self),
                ..response
            })),
            Err(EtcdError::LeaseNotFound) => Ok(Response::new(LeaseTimeToLiveResponse {
                header: header(self),
                id: request.id,
                ttl: -1,
                ..LeaseTimeToLiveResponse::default()
            })),
            Err(error) => Err(self.refuse(error)),
        }
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        self.read_barrier(&required).await?;
        let leases = self.member.leases.lock().list();
        Ok(Response::new(LeaseLeasesResponse {
            header: Some(
                self.member
                    .store
                    .header(self.member.store.reader().revision()),
            ),
            leases: leases
                .into_iter()
                .map(|id| LeaseStatus { id: id.0 })
                .collect(),
        }))
    }
}

impl Api {
    /// Renews a lease once. The header is from before the renewal, as in etcd.
    async fn keep_alive(&self, id: LeaseId) -> Result<LeaseKeepAliveResponse, Status> {
        let header = Some(
            self.member
                .store
                .header(self.member.store.reader().revision()),
        );
        let response = |ttl| LeaseKeepAliveResponse {
            header,
            id: id.0,
            ttl,
        };
        if !self.member.process.gates.enabled(FastLeaseKeepAlive) {
            self.member
                .store
                .linearizable()
                .await
                .map_err(|error| self.refuse(error))?;
        }
        match self.member.renew(id).await {
            Ok(ttl) => Ok(response(ttl)),
            Err(EtcdError::LeaseNotFound) => Ok(response(0)),
            Err(error) => Err(self.refuse(error)),
        }
    }
}
