//! The Lease service.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use portunus_auth::{AuthState, Caller};
use portunus_proto::etcdserverpb::lease_server::Lease;
use portunus_proto::etcdserverpb::{
    InternalRaftRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use portunus_proto::{EtcdError, LeaseId};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::access::Rpc;
use super::authorize::Permit;
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
        let (metadata, extensions, mut grant) = request.into_parts();
        if LeaseId(grant.id) == LeaseId::NONE {
            // Positive, and unlikely to collide with an id that a client chooses.
            grant.id = i64::try_from(self.member.proposals.next_request_id() & i64::MAX as u64)
                .unwrap_or(i64::MAX);
        }
        self.member
            .proposals
            .check_quota(LEASE_COST_BYTES)
            .map_err(|error| self.refuse(error))?;
        let permit = self.authorize(Rpc::LeaseGrant, &metadata, &extensions);
        let permit = permit.await?;
        let request = InternalRaftRequest {
            lease_grant: Some(grant),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required, &permit).await? {
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
        let (metadata, extensions, revoke) = request.into_parts();
        let permit = self.authorize(Rpc::LeaseRevoke, &metadata, &extensions);
        let permit = permit.await?;
        let check = |auth: &AuthState, caller: &Caller| {
            auth.check_authenticated(caller)?;
            let leased = |lease| self.leased_keys(lease);
            let checked = auth.check_lease_writable(caller, LeaseId(revoke.id), &leased);
            checked.map_err(|refusal| self.alarm_or(0, refusal))
        };
        let permit = self.permit(permit.caller, check).await?;
        let request = InternalRaftRequest {
            lease_revoke: Some(revoke),
            ..InternalRaftRequest::default()
        };
        match self.proposed(request, &required, &permit).await? {
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
        let (metadata, extensions, requests) = request.into_parts();
        let stream = Arc::new((self.clone(), required, metadata, extensions));
        let answers = requests.then(move |request| {
            let stream = Arc::clone(&stream);
            async move {
                let (api, required, metadata, extensions) = &*stream;
                let request = request.map_err(in_words_of_go)?;
                // Identified anew for each renewal: the token may have expired.
                let permit = api.authorize(Rpc::LeaseKeepAlive, metadata, extensions);
                let permit = permit.await?;
                api.check_lease_renewal(permit, LeaseId(request.id)).await?;
                api.check_required(required)?;
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
        let (metadata, extensions, request) = request.into_parts();
        let permit = self.authorize(Rpc::LeaseTimeToLive, &metadata, &extensions);
        let permit = permit.await?;
        let check = |auth: &AuthState, caller: &Caller| {
            auth.check_authenticated(caller)?;
            match request.keys {
                true => {
                    let leased = |lease| self.leased_keys(lease);
                    auth.check_lease_readable(caller, LeaseId(request.id), &leased)
                }
                false => Ok(()),
            }
        };
        let permit = self.permit(permit.caller, check).await?;
        let header = |api: &Api| {
            Some(
                api.member
                    .store
                    .header(api.member.store.reader().revision()),
            )
        };
        match self.member.time_to_live(&request).await {
            Ok(response) => {
                self.confirm_leased_keys(&permit, &response.keys)?;
                Ok(Response::new(LeaseTimeToLiveResponse {
                    header: header(self),
                    ..response
                }))
            }
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
        let (metadata, extensions, _) = request.into_parts();
        self.read_barrier(false).await?;
        let permit = self.authorize(Rpc::LeaseLeases, &metadata, &extensions);
        let permit = permit.await?;
        let leases = self.member.leases.lock().list();
        let check = |auth: &AuthState, caller: &Caller| {
            auth.check_authenticated(caller)?;
            if auth.check_admin(caller).is_ok() {
                return Ok(());
            }
            let leased = |lease| self.leased_keys(lease);
            let mut leases = leases.iter();
            leases.try_for_each(|id| auth.check_lease_readable(caller, *id, &leased))
        };
        let permit = self.permit(permit.caller, check).await?;
        self.check_required(&required)?;
        self.confirm(&permit, check)?;
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
    /// Checks that the caller may write all keys of a lease that it renews.
    async fn check_lease_renewal(&self, permit: Permit, id: LeaseId) -> Result<(), Status> {
        let check = |auth: &AuthState, caller: &Caller| {
            auth.check_authenticated(caller)?;
            auth.check_lease_writable(caller, id, &|lease| self.leased_keys(lease))
        };
        self.permit(permit.caller, check).await.map(drop)
    }

    /// Checks that the caller may read these keys of a lease. The leader may have answered, which
    /// knows keys that this member did not know when it checked the caller.
    fn confirm_leased_keys(&self, permit: &Permit, keys: &[Bytes]) -> Result<(), Status> {
        let check = |auth: &AuthState, caller: &Caller| {
            if auth.check_admin(caller).is_ok() {
                return Ok(());
            }
            let mut keys = keys.iter();
            keys.try_for_each(|key| auth.check_range(caller, key, &[]))
        };
        if !keys.is_empty() {
            let state = self.member.auth.state();
            check(&state, &permit.caller).map_err(|error| self.refuse(error))?;
        }
        self.confirm(permit, check)
    }

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
