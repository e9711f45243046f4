//! Members of the cluster.

use portunus_proto::etcdserverpb::cluster_client::ClusterClient;
use portunus_proto::etcdserverpb::{MemberListRequest, MemberListResponse};

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
}
