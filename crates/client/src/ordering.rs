//! A view of the store that never goes back in revision, as clientv3's `ordering`.
//!
//! A serializable read is answered by any member, which may be behind the one that answered before.
//! The view repeats such a read at the next endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use portunus_proto::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    ResponseHeader, TxnRequest, TxnResponse,
};
use tokio::time::sleep;

use crate::connection::Client;
use crate::error::ClientError;
use crate::kv::only_reads;

/// How often a read is made at each endpoint before it fails, as in clientv3.
const ATTEMPTS_PER_ENDPOINT: usize = 5;
/// The pause before a read is repeated: a member that is behind needs some time.
const REPEAT_PAUSE: Duration = Duration::from_millis(20);

/// A view of the store that never goes back in revision; see [`Client::ordered`]. Clones share the
/// revision.
#[derive(Debug, Clone)]
pub struct Ordered {
    client: Client,
    /// The newest revision that any call has returned.
    newest: Arc<AtomicI64>,
}

/// Why a call of an [ordered view](Ordered) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrderingError {
    /// All members that answered are behind. The text begins as clientv3's.
    #[error(
        "etcdclient: no cluster members have a revision higher than the previously received revision: {revision} instead of {known} or more; try again"
    )]
    Stale {
        /// The revision of the last answer.
        revision: i64,
        /// The newest revision that was received before.
        known: i64,
    },
    /// The server's error, or a timeout.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Client {
    /// Returns a view that refuses answers that are older than the newest one before.
    #[must_use]
    pub fn ordered(&self) -> Ordered {
        Ordered {
            client: self.clone(),
            newest: Arc::default(),
        }
    }
}

impl Ordered {
    /// Returns the newest revision that was received; 0 before the first call.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Like [`Client::range`].
    ///
    /// # Errors
    /// If all members are behind; the server's error, or a timeout.
    pub async fn range(
        &self,
        request: impl Into<RangeRequest>,
    ) -> Result<RangeResponse, OrderingError> {
        let request: RangeRequest = request.into();
        let read = || self.client.range(request.clone());
        self.in_order(read, |response| response.header).await
    }

    /// Like [`Client::put`].
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn put(&self, request: impl Into<PutRequest>) -> Result<PutResponse, OrderingError> {
        let response = self.client.put(request).await?;
        self.advance(response.header);
        Ok(response)
    }

    /// Like [`Client::delete_range`].
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn delete_range(
        &self,
        request: impl Into<DeleteRangeRequest>,
    ) -> Result<DeleteRangeResponse, OrderingError> {
        let response = self.client.delete_range(request).await?;
        self.advance(response.header);
        Ok(response)
    }

    /// Like [`Client::txn`]. Only a transaction that only reads can be behind.
    ///
    /// # Errors
    /// If all members are behind; the server's error, or a timeout.
    pub async fn txn(&self, request: impl Into<TxnRequest>) -> Result<TxnResponse, OrderingError> {
        let request: TxnRequest = request.into();
        if only_reads(&request) {
            let read = || self.client.txn(request.clone());
            return self.in_order(read, |response| response.header).await;
        }
        let response = self.client.txn(request).await?;
        self.advance(response.header);
        Ok(response)
    }

    /// Makes a read until its answer is not older than what was known when it began.
    async fn in_order<T, F>(
        &self,
        mut read: impl FnMut() -> F,
        header_of: impl Fn(&T) -> Option<ResponseHeader>,
    ) -> Result<T, OrderingError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let known = self.revision();
        let attempts_max = ATTEMPTS_PER_ENDPOINT * self.client.endpoints().len();
        let mut revision = 0;
        for _ in 0..attempts_max {
            let response = read().await?;
            let header = header_of(&response);
            revision = header.map_or(0, |header| header.revision);
            if revision >= known {
                self.advance(header);
                return Ok(response);
            }
            sleep(REPEAT_PAUSE).await;
        }
        Err(OrderingError::Stale { revision, known })
    }

    fn advance(&self, header: Option<ResponseHeader>) {
        let revision = header.map_or(0, |header| header.revision);
        self.newest.fetch_max(revision, Ordering::AcqRel);
    }
}
