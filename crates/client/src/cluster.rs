//! Members of the cluster: who they are, and changing that.
//!
//! A change is asked of one member once. When no answer comes it may have happened all the
//! same; [`Client::member_list`] tells.

use portunus_proto::etcdserverpb::cluster_client::ClusterClient;
use portunus_proto::etcdserverpb::{
    MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse,
};

use crate::connection::{Client, Repeat};
use crate::error::ClientError;

impl Client {
    /// Lists the members.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn member_list(
        &self,
        request: MemberListRequest,
    ) -> Result<MemberListResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(request);
            async move { ClusterClient::new(channel).member_list(request).await }
        })
        .await
    }

    /// Adds a member, as a voter or as a learner. It has to be started afterwards.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn member_add(
        &self,
        request: MemberAddRequest,
    ) -> Result<MemberAddResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request.clone());
            async move { ClusterClient::new(channel).member_add(request).await }
        })
        .await
    }

    /// Removes a member, for good.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn member_remove(
        &self,
        request: MemberRemoveRequest,
    ) -> Result<MemberRemoveResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request);
            async move { ClusterClient::new(channel).member_remove(request).await }
        })
        .await
    }

    /// Gives a member other peer URLs.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn member_update(
        &self,
        request: MemberUpdateRequest,
    ) -> Result<MemberUpdateResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request.clone());
            async move { ClusterClient::new(channel).member_update(request).await }
        })
        .await
    }

    /// Makes a learner a voter.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn member_promote(
        &self,
        request: MemberPromoteRequest,
    ) -> Result<MemberPromoteResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request);
            async move { ClusterClient::new(channel).member_promote(request).await }
        })
        .await
    }
}
