//! The members of the cluster and membership changes.
//!
//! A change is sent once, to one member. Without an answer it may still have been applied;
//! [`Client::member_list`] shows whether it was.

use portunus_proto::etcdserverpb::cluster_client::ClusterClient;
use portunus_proto::etcdserverpb::{
    MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse,
};

use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;

impl Client {
    /// Lists the members.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn member_list(
        &self,
        request: MemberListRequest,
    ) -> Result<MemberListResponse, ClientError> {
        self.call(calls::MEMBER_LIST, |channel| {
            let request = self.request(request);
            async move { ClusterClient::new(channel).member_list(request).await }
        })
        .await
    }

    /// Adds a member as a voter or learner. Its process must be started afterwards.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn member_add(
        &self,
        request: MemberAddRequest,
    ) -> Result<MemberAddResponse, ClientError> {
        self.call(calls::MEMBER_ADD, |channel| {
            let request = self.request(request.clone());
            async move { ClusterClient::new(channel).member_add(request).await }
        })
        .await
    }

    /// Removes a member permanently.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn member_remove(
        &self,
        request: MemberRemoveRequest,
    ) -> Result<MemberRemoveResponse, ClientError> {
        self.call(calls::MEMBER_REMOVE, |channel| {
            let request = self.request(request);
            async move { ClusterClient::new(channel).member_remove(request).await }
        })
        .await
    }

    /// Replaces the peer URLs of a member.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn member_update(
        &self,
        request: MemberUpdateRequest,
    ) -> Result<MemberUpdateResponse, ClientError> {
        self.call(calls::MEMBER_UPDATE, |channel| {
            let request = self.request(request.clone());
            async move { ClusterClient::new(channel).member_update(request).await }
        })
        .await
    }

    /// Promotes a learner to a voter.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn member_promote(
        &self,
        request: MemberPromoteRequest,
    ) -> Result<MemberPromoteResponse, ClientError> {
        self.call(calls::MEMBER_PROMOTE, |channel| {
            let request = self.request(request);
            async move { ClusterClient::new(channel).member_promote(request).await }
        })
        .await
    }
}
