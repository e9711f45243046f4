//! Maintenance of one member: status, hash, alarms, defragmentation, snapshot; and of the
//! cluster: leadership transfer and downgrade.

use portunus_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, DefragmentRequest, DefragmentResponse, DowngradeRequest,
    DowngradeResponse, HashKvRequest, HashKvResponse, HashRequest, HashResponse, MoveLeaderRequest,
    MoveLeaderResponse, SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse,
};
use tonic::Streaming;

use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;

impl Client {
    /// Returns the status of the member that answers.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.call(calls::STATUS, |channel| {
            let request = self.request(StatusRequest {});
            async move { MaintenanceClient::new(channel).status(request).await }
        })
        .await
    }

    /// Returns the hash of the member's history up to a revision.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn hash_kv(&self, request: HashKvRequest) -> Result<HashKvResponse, ClientError> {
        self.call(calls::HASH_KV, |channel| {
            let request = self.request(request);
            async move { MaintenanceClient::new(channel).hash_kv(request).await }
        })
        .await
    }

    /// Returns the hash of the member's whole backend. For tests of etcd; [`Self::hash_kv`] can be
    /// compared between members.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn hash(&self) -> Result<HashResponse, ClientError> {
        self.call(calls::HASH, |channel| {
            let request = self.request(HashRequest {});
            async move { MaintenanceClient::new(channel).hash(request).await }
        })
        .await
    }

    /// Lists, raises or clears alarms.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn alarm(&self, request: AlarmRequest) -> Result<AlarmResponse, ClientError> {
        self.call(calls::ALARM, |channel| {
            let request = self.request(request);
            async move { MaintenanceClient::new(channel).alarm(request).await }
        })
        .await
    }

    /// Releases unused space in the member's files.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn defragment(&self) -> Result<DefragmentResponse, ClientError> {
        self.call(calls::DEFRAGMENT, |channel| {
            let request = self.request(DefragmentRequest {});
            async move { MaintenanceClient::new(channel).defragment(request).await }
        })
        .await
    }

    /// Transfers leadership to another voter. Only the leader accepts the request, so a retry
    /// after a transfer is refused.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn move_leader(
        &self,
        request: MoveLeaderRequest,
    ) -> Result<MoveLeaderResponse, ClientError> {
        self.call(calls::MOVE_LEADER, |channel| {
            let request = self.request(request);
            async move { MaintenanceClient::new(channel).move_leader(request).await }
        })
        .await
    }

    /// Validates, enables or cancels a downgrade of the cluster.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn downgrade(
        &self,
        request: DowngradeRequest,
    ) -> Result<DowngradeResponse, ClientError> {
        self.call(calls::DOWNGRADE, |channel| {
            let request = self.request(request.clone());
            async move { MaintenanceClient::new(channel).downgrade(request).await }
        })
        .await
    }

    /// Returns a snapshot of the member's data in pieces. The deadline covers the first
    /// response only.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn snapshot(&self) -> Result<Streaming<SnapshotResponse>, ClientError> {
        self.call(calls::SNAPSHOT, |channel| {
            let request = self.request(SnapshotRequest {});
            async move {
                MaintenanceClient::new(channel)
                    .max_decoding_message_size(self.options().response_bytes_max)
                    .snapshot(request)
                    .await
            }
        })
        .await
    }
}
