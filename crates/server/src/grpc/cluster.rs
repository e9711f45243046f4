//! Members. This version runs clusters of one.

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::cluster_server::Cluster;
use portunus_proto::etcdserverpb::{
    MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse,
};
use tonic::{Request, Response, Status};

use super::{Api, Kind};

const SEVERAL: &str = "clusters of several members are not supported by this version";

#[tonic::async_trait]
impl Cluster for Api {
    async fn member_add(
        &self,
        _request: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        Err(Status::unimplemented(SEVERAL))
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        // The only member cannot go: nobody would be left to agree to it.
        Err(self.refuse(match self.is_known(request.into_inner().id) {
            true => EtcdError::MemberNotEnoughStarted,
            false => EtcdError::MemberNotFound,
        }))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        if !self.is_known(request.into_inner().id) {
            return Err(self.refuse(EtcdError::MemberNotFound));
        }
        Err(Status::unimplemented(SEVERAL))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        self.check_metadata(Kind::Unary, request.metadata())?;
        if request.into_inner().linearizable {
            self.member
                .linearizable()
                .await
                .map_err(|error| self.refuse(error))?;
        }
        Ok(Response::new(MemberListResponse {
            header: Some(self.member.header(0)),
            members: self.member.membership.load().to_messages(),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        Err(self.refuse(match self.is_known(request.into_inner().id) {
            true => EtcdError::MemberNotLearner,
            false => EtcdError::MemberNotFound,
        }))
    }
}

impl Api {
    fn is_known(&self, id: u64) -> bool {
        self.member.membership.load().get(id).is_some()
    }
}
