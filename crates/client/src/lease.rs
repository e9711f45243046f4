//! Leases: grant, revoke, look at. Keeping one alive is `keep_alive.rs`.

use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseLeasesRequest, LeaseLeasesResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};

use crate::connection::{Client, Repeat};
use crate::error::ClientError;

impl Client {
    /// Makes a lease.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn lease_grant(
        &self,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request);
            async move { LeaseClient::new(channel).lease_grant(request).await }
        })
        .await
    }

    /// Ends a lease and deletes its keys.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn lease_revoke(
        &self,
        request: LeaseRevokeRequest,
    ) -> Result<LeaseRevokeResponse, ClientError> {
        self.call(Repeat::Never, |channel| {
            let request = self.request(request);
            async move { LeaseClient::new(channel).lease_revoke(request).await }
        })
        .await
    }

    /// What is left of a lease, and its keys if asked for.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn lease_time_to_live(
        &self,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(request);
            async move { LeaseClient::new(channel).lease_time_to_live(request).await }
        })
        .await
    }

    /// All leases.
    ///
    /// # Errors
    /// What the server answers, or that none did in time.
    pub async fn lease_leases(&self) -> Result<LeaseLeasesResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(LeaseLeasesRequest {});
            async move { LeaseClient::new(channel).lease_leases(request).await }
        })
        .await
    }
}
