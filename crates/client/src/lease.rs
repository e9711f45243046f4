//! Leases: grant, revoke, query. `keep_alive.rs` keeps one alive.

use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseLeasesRequest, LeaseLeasesResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};

use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;

impl Client {
    /// Grants a lease.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn lease_grant(
        &self,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, ClientError> {
        self.call(calls::LEASE_GRANT, |channel| {
            let request = self.request(request);
            async move { LeaseClient::new(channel).lease_grant(request).await }
        })
        .await
    }

    /// Revokes a lease and deletes its keys.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn lease_revoke(
        &self,
        request: LeaseRevokeRequest,
    ) -> Result<LeaseRevokeResponse, ClientError> {
        self.call(calls::LEASE_REVOKE, |channel| {
            let request = self.request(request);
            async move { LeaseClient::new(channel).lease_revoke(request).await }
        })
        .await
    }

    /// Returns the remaining TTL of a lease, and its keys if requested.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn lease_time_to_live(
        &self,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, ClientError> {
        self.call(calls::LEASE_TIME_TO_LIVE, |channel| {
            let request = self.request(request);
            async move { LeaseClient::new(channel).lease_time_to_live(request).await }
        })
        .await
    }

    /// Lists all leases.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn lease_leases(&self) -> Result<LeaseLeasesResponse, ClientError> {
        self.call(calls::LEASE_LEASES, |channel| {
            let request = self.request(LeaseLeasesRequest {});
            async move { LeaseClient::new(channel).lease_leases(request).await }
        })
        .await
    }
}
