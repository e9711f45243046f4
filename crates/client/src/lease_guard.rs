//! A lease that its holder keeps alive, and the reason for its loss.
//!
//! [`LeaseGuard`] has no task: the lease lives while the caller polls one of its futures. The
//! [session](crate::concurrency::Session) is the variant with a task.

use std::future::Future;
use std::sync::Arc;

use portunus_proto::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveResponse, LeaseRevokeRequest};
use tokio::time::Instant;

use crate::connection::Client;
use crate::error::ClientError;
use crate::keep_alive::{KeepAlive, Renewal};

/// Why a lease is not kept alive any longer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseLost {
    /// The server does not know the lease: it was revoked or has expired.
    #[error("lease {id:016x} was revoked or has expired")]
    NotFound {
        /// The lease.
        id: i64,
    },
    /// No server answered before the lease expired.
    #[error("lease {id:016x} could not be renewed before it expired")]
    Expired {
        /// The lease.
        id: i64,
    },
    /// The server refuses to renew the lease.
    #[error("lease {id:016x} cannot be renewed")]
    Refused {
        /// The lease.
        id: i64,
        /// The refusal.
        #[source]
        error: Arc<ClientError>,
    },
    /// The holder gave up the lease.
    #[error("lease {id:016x} is not kept alive: its session was closed")]
    Closed {
        /// The lease.
        id: i64,
    },
}

/// A lease and the means to keep it alive.
///
/// Dropping the guard ends the renewals and leaves the lease to expire; [`Self::revoke`] ends it at
/// once.
#[derive(Debug)]
#[must_use = "a lease that nobody keeps alive expires"]
pub struct LeaseGuard {
    client: Client,
    keep_alive: KeepAlive,
    ttl_s: i64,
}

impl Client {
    /// Grants a lease and returns it with its keepalive.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn lease(&self, ttl_s: i64) -> Result<LeaseGuard, ClientError> {
        let requested = Instant::now();
        let request = LeaseGrantRequest { ttl: ttl_s, id: 0 };
        let granted = self.lease_grant(request).await?;
        let mut keep_alive = self.keep_alive(granted.id);
        keep_alive.granted(requested, granted.ttl);
        Ok(LeaseGuard {
            client: self.clone(),
            keep_alive,
            ttl_s: granted.ttl,
        })
    }

    /// Takes over a lease that exists, renewing it once.
    ///
    /// # Errors
    /// If the lease does not exist; another error of the server, or a timeout.
    pub async fn adopt_lease(&self, id: i64) -> Result<LeaseGuard, ClientError> {
        let requested = Instant::now();
        let renewed = self.keep_alive_once(id).await?;
        let mut keep_alive = self.keep_alive(id);
        keep_alive.granted(requested, renewed.ttl);
        Ok(LeaseGuard {
            client: self.clone(),
            keep_alive,
            ttl_s: renewed.ttl,
        })
    }
}

impl LeaseGuard {
    /// Returns the lease, to attach keys to.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.keep_alive.id()
    }

    /// Returns the TTL that the server granted, in seconds; it may be larger than the requested one.
    #[must_use]
    pub fn ttl_s(&self) -> i64 {
        self.ttl_s
    }

    /// Returns when the lease expires without another renewal.
    #[must_use]
    pub fn expires(&self) -> Instant {
        self.keep_alive.expires()
    }

    /// Waits until the next renewal is due, renews the lease and returns the response. Connections
    /// that break in between are replaced. Dropping the future is safe.
    ///
    /// # Errors
    /// The loss of the lease.
    pub async fn renew(&mut self) -> Result<LeaseKeepAliveResponse, LeaseLost> {
        let id = self.id();
        match self.keep_alive.renewed().await {
            Ok(Renewal::Renewed(response)) => Ok(response),
            Ok(Renewal::NotFound) => Err(LeaseLost::NotFound { id }),
            Ok(Renewal::Expired) => Err(LeaseLost::Expired { id }),
            Err(error) => Err(LeaseLost::Refused {
                id,
                error: Arc::new(error),
            }),
        }
    }

    /// Keeps the lease alive until it is lost, and returns why. For `tokio::select!`.
    pub async fn lost(&mut self) -> LeaseLost {
        loop {
            if let Err(lost) = self.renew().await {
                return lost;
            }
        }
    }

    /// Runs `work` while the lease is kept alive. If the lease is lost, `work` is dropped.
    ///
    /// # Errors
    /// The loss of the lease before `work` was done.
    pub async fn while_held<T>(&mut self, work: impl Future<Output = T>) -> Result<T, LeaseLost> {
        tokio::select! {
            lost = self.lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    /// Revokes the lease: the server deletes its keys.
    ///
    /// # Errors
    /// The server's error, or a timeout. Then the lease expires after its TTL.
    pub async fn revoke(self) -> Result<(), ClientError> {
        let request = LeaseRevokeRequest { id: self.id() };
        self.client.lease_revoke(request).await.map(drop)
    }
}
