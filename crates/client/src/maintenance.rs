//! What an operator asks one member: its state, its hash, its space, a copy of its data; and of
//! the cluster, that another member leads or that it goes back a version.

use portunus_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, DefragmentRequest, DefragmentResponse, DowngradeRequest,
    DowngradeResponse, HashKvRequest, HashKvResponse, MoveLeaderRequest, MoveLeaderResponse,
    SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse,
};
use tonic::Streaming;

use crate::connection::{Client, Repeat};
use crate::error::ClientError;

impl Client {
    /// State of the member that answers.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(StatusRequest {});
            async move { MaintenanceClient::new(channel).status(request).await }
        })
        .await
    }

    /// Hash of the member's history up to a revision.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn hash_kv(&self, request: HashKvRequest) -> Result<HashKvResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(request);
            async move { MaintenanceClient::new(channel).hash_kv(request).await }
        })
        .await
    }

    /// Lists, raises or clears alarms.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn alarm(&self, request: AlarmRequest) -> Result<AlarmResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request);
            async move { MaintenanceClient::new(channel).alarm(request).await }
        })
        .await
    }

    /// Gives unused space of the member's files back.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn defragment(&self) -> Result<DefragmentResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(DefragmentRequest {});
            async move { MaintenanceClient::new(channel).defragment(request).await }
        })
        .await
    }

    /// Hands leadership to another voter. Only the leader does that; a repetition that comes
    /// too late is refused by whoever is asked, as it leads no more.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn move_leader(
        &self,
        request: MoveLeaderRequest,
    ) -> Result<MoveLeaderResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(request);
            async move { MaintenanceClient::new(channel).move_leader(request).await }
        })
        .await
    }

    /// Asks whether the cluster can go back to a version, begins that, or ends it.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn downgrade(
        &self,
        request: DowngradeRequest,
    ) -> Result<DowngradeResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request.clone());
            async move { MaintenanceClient::new(channel).downgrade(request).await }
        })
        .await
    }

    /// A copy of the member's data, in pieces. The deadline covers the first answer only; what
    /// follows takes as long as it takes.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn snapshot(&self) -> Result<Streaming<SnapshotResponse>, ClientError> {
        self.call(Repeat::Safe, |channel| {
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
