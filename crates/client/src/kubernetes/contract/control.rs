//! What the contract suite needs beside the interface.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use portunus_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest, request_op,
};

use crate::error::ClientError;
use crate::key_range::prefix_end;
use crate::kubernetes::{
    Error, GetOptions, Interface, KeyValue, Kubernetes, ListOptions, Memory, Write,
};

/// Why a control did nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The store does not have it; rules that need it are skipped.
    #[error("the store has no {what}")]
    Unsupported {
        /// The control.
        what: &'static str,
    },
    /// It failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// Operations of a store that are not part of the interface. Every one may be missing: then the
/// rules that need it are skipped.
#[async_trait]
pub trait Control: Send + Sync {
    /// Removes the history before a revision.
    ///
    /// # Errors
    /// If the store does not support it or refuses it.
    async fn compact(&self, revision: i64) -> Result<(), ControlError> {
        let _ = revision;
        Err(ControlError::Unsupported { what: "compaction" })
    }

    /// Grants a lease and returns its id.
    ///
    /// # Errors
    /// If the store does not support it or refuses it.
    async fn grant_lease(&self, ttl: Duration) -> Result<i64, ControlError> {
        let _ = ttl;
        Err(ControlError::Unsupported { what: "leases" })
    }

    /// Revokes a lease.
    ///
    /// # Errors
    /// If the store does not support it or refuses it.
    async fn revoke_lease(&self, id: i64) -> Result<(), ControlError> {
        let _ = id;
        Err(ControlError::Unsupported { what: "leases" })
    }

    /// Writes several keys in one transaction and returns its revision.
    ///
    /// # Errors
    /// If the store does not support it or refuses it.
    async fn write(&self, writes: Vec<Write>) -> Result<i64, ControlError> {
        let _ = writes;
        Err(ControlError::Unsupported {
            what: "transactions of several keys",
        })
    }

    /// Lists the keys with a prefix without their values.
    ///
    /// # Errors
    /// If the store does not support it or refuses it.
    async fn list_keys(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, ControlError> {
        let _ = prefix;
        Err(ControlError::Unsupported {
            what: "lists without values",
        })
    }

    /// Lists the pairs with a prefix at a revision as a stream.
    ///
    /// # Errors
    /// If the store does not support it or refuses it.
    async fn stream(&self, prefix: &[u8], revision: i64) -> Result<Vec<KeyValue>, ControlError> {
        let _ = (prefix, revision);
        Err(ControlError::Unsupported {
            what: "streams of ranges",
        })
    }
}

/// The controls of a store that has only the interface.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoControl;

#[async_trait]
impl Control for NoControl {}

#[async_trait]
impl Control for Memory {
    async fn compact(&self, revision: i64) -> Result<(), ControlError> {
        Ok(Memory::compact(self, revision)?)
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<i64, ControlError> {
        Ok(Memory::grant_lease(self, ttl))
    }

    async fn revoke_lease(&self, id: i64) -> Result<(), ControlError> {
        Ok(Memory::revoke_lease(self, id)?)
    }

    async fn write(&self, writes: Vec<Write>) -> Result<i64, ControlError> {
        Ok(Memory::write(self, writes)?)
    }

    async fn list_keys(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, ControlError> {
        let mut pairs = self.stream(prefix, 0).await?;
        for pair in &mut pairs {
            pair.value = Bytes::new();
        }
        Ok(pairs)
    }

    async fn stream(&self, prefix: &[u8], revision: i64) -> Result<Vec<KeyValue>, ControlError> {
        let options = ListOptions {
            revision,
            ..ListOptions::default()
        };
        Ok(self.list(prefix, options).await?.kvs)
    }
}

#[async_trait]
impl Control for Kubernetes {
    async fn compact(&self, revision: i64) -> Result<(), ControlError> {
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        self.client().compact(request).await.map_err(Error::from)?;
        // A follower may apply the compaction later; a linearizable read waits for it.
        self.get(b"compact_rev_key", GetOptions::default()).await?;
        Ok(())
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<i64, ControlError> {
        let request = LeaseGrantRequest {
            ttl: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
            id: 0,
        };
        let granted = self.client().lease_grant(request).await;
        Ok(granted.map_err(Error::from)?.id)
    }

    async fn revoke_lease(&self, id: i64) -> Result<(), ControlError> {
        let request = LeaseRevokeRequest { id };
        self.client()
            .lease_revoke(request)
            .await
            .map_err(Error::from)?;
        Ok(())
    }

    async fn write(&self, writes: Vec<Write>) -> Result<i64, ControlError> {
        let request = TxnRequest {
            success: writes.into_iter().map(operation).collect(),
            ..TxnRequest::default()
        };
        let response = self.client().txn(request).await.map_err(Error::from)?;
        Ok(response.header.map_or(0, |header| header.revision))
    }

    async fn list_keys(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, ControlError> {
        let request = RangeRequest {
            keys_only: true,
            ..range(prefix, 0)
        };
        let response = self.client().range(request).await.map_err(Error::from)?;
        Ok(response.kvs.into_iter().map(KeyValue::from).collect())
    }

    async fn stream(&self, prefix: &[u8], revision: i64) -> Result<Vec<KeyValue>, ControlError> {
        match self.client().range_stream(range(prefix, revision)).await {
            Ok(response) => Ok(response.kvs.into_iter().map(KeyValue::from).collect()),
            Err(error) => Err(unsupported_or(error, "streams of ranges")),
        }
    }
}

fn operation(write: Write) -> RequestOp {
    let request = match write {
        Write::Put { key, value, lease } => request_op::Request::RequestPut(PutRequest {
            key,
            value,
            lease,
            ..PutRequest::default()
        }),
        Write::Delete { key } => request_op::Request::RequestDeleteRange(DeleteRangeRequest {
            key,
            ..DeleteRangeRequest::default()
        }),
    };
    RequestOp {
        request: Some(request),
    }
}

fn range(prefix: &[u8], revision: i64) -> RangeRequest {
    RangeRequest {
        key: Bytes::copy_from_slice(prefix),
        range_end: prefix_end(prefix),
        revision,
        ..RangeRequest::default()
    }
}

fn unsupported_or(error: ClientError, what: &'static str) -> ControlError {
    match error.is_unimplemented() {
        true => ControlError::Unsupported { what },
        false => ControlError::Failed(error.into()),
    }
}
