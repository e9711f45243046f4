//! The Cluster service: membership changes and the member list.

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::cluster_server::Cluster;
use portunus_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse,
};
use tonic::{Request, Response, Status};

use super::access::Rpc;
use super::{Api, Kind};

#[tonic::async_trait]
impl Cluster for Api {
    async fn member_add(
        &self,
        request: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        // Before the permission, as in etcd.
        let urls = self.peer_urls(request.get_ref().peer_urls.clone())?;
        let permit = self.authorize(Rpc::MemberAdd, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let request = request.into_inner();
        let (added, membership) = self
            .member
            .add_member(urls, request.is_learner)
            .await
            .map_err(|error| self.refuse(error))?;
        Ok(Response::new(MemberAddResponse {
            header: Some(self.member.store.header(0)),
            member: Some(Member {
                id: added.id,
                peer_urls: added.peer_urls.unwrap_or_default(),
                is_learner: added.is_learner,
                ..Member::default()
            }),
            members: membership.to_messages(),
        }))
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::MemberRemove, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let removed = self.member.remove_member(request.into_inner().id).await;
        let membership = removed.map_err(|error| self.refuse(error))?;
        Ok(Response::new(MemberRemoveResponse {
            header: Some(self.member.store.header(0)),
            members: membership.to_messages(),
        }))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::MemberUpdate, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let request = request.into_inner();
        let urls = self.peer_urls(request.peer_urls)?;
        let updated = self.member.update_member(request.id, urls).await;
        let membership = updated.map_err(|error| self.refuse(error))?;
        Ok(Response::new(MemberUpdateResponse {
            header: Some(self.member.store.header(0)),
            members: membership.to_messages(),
        }))
    }

    async fn member_list(
        &self,
        request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::MemberList, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        if request.into_inner().linearizable {
            self.member
                .store
                .linearizable()
                .await
                .map_err(|error| self.refuse(error))?;
        }
        Ok(Response::new(MemberListResponse {
            header: Some(self.member.store.header(0)),
            members: self.member.cluster.membership().to_messages(),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(Rpc::MemberPromote, request.metadata(), request.extensions());
        permit.await?;
        self.check_required(&required)?;
        let promoted = self.member.promote_member(request.into_inner().id).await;
        let membership = promoted.map_err(|error| self.refuse(error))?;
        Ok(Response::new(MemberPromoteResponse {
            header: Some(self.member.store.header(0)),
            members: membership.to_messages(),
        }))
    }
}

impl Api {
    /// Validates peer URLs as etcd does: at least one, each with a host, a port and no path.
    fn peer_urls(&self, texts: Vec<String>) -> Result<Vec<String>, Status> {
        let is_url = |text: &str| {
            let rest = text
                .strip_prefix("http://")
                .or_else(|| text.strip_prefix("https://"));
            rest.is_some_and(|authority| {
                let host_port = authority.rsplit_once(':');
                !authority.contains('/')
                    && host_port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
            })
        };
        let mut urls: Vec<String> = texts.iter().map(|text| text.trim().to_owned()).collect();
        urls.sort();
        if urls.is_empty() || !urls.iter().all(|url| is_url(url)) {
            return Err(self.refuse(EtcdError::MemberBadUrls));
        }
        Ok(urls)
    }
}
