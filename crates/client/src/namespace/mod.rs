//! A view of the keys with a prefix, as clientv3's `namespace`: requests get the prefix, and keys in
//! responses lose it.
//!
//! ```
//! # fn view(client: &portunus_client::Client) {
//! let tenant = client.namespace("/tenants/a/");
//! // Reads /tenants/a/config.
//! let read = tenant.range(portunus_client::Range::key("config"));
//! # drop(read); }
//! ```
//!
//! Leases belong to the store, not to the namespace: keys of several namespaces can share one.

mod translate;

use bytes::Bytes;
use portunus_proto::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    PutRequest, PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchResponse,
};
use portunus_proto::mvccpb::KeyValue;

use self::translate::Prefix;
use crate::connection::Client;
use crate::error::ClientError;
use crate::list::List;
use crate::watch::{ProgressRequester, Watcher};

/// A view of the keys with a prefix; see [`Client::namespace`].
#[derive(Debug, Clone)]
pub struct Namespace {
    client: Client,
    prefix: Prefix,
}

/// A watch in a namespace.
#[derive(Debug)]
pub struct NamespaceWatcher {
    watcher: Watcher,
    prefix: Prefix,
}

/// A list in a namespace.
#[derive(Debug)]
pub struct NamespaceList {
    list: List,
    prefix: Prefix,
}

impl Client {
    /// Returns a view of the keys with a prefix, in which keys have no prefix.
    #[must_use]
    pub fn namespace(&self, prefix: impl AsRef<[u8]>) -> Namespace {
        Namespace {
            client: self.clone(),
            prefix: Prefix(Bytes::copy_from_slice(prefix.as_ref())),
        }
    }
}

impl Namespace {
    /// Returns the prefix.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.prefix.0
    }

    /// Like [`Client::range`].
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn range(
        &self,
        request: impl Into<RangeRequest>,
    ) -> Result<RangeResponse, ClientError> {
        let mut request: RangeRequest = request.into();
        self.client.check(&request)?;
        self.prefix.add_to_range(&mut request);
        let mut response = self.client.range(request).await?;
        self.prefix.remove_from_pairs(&mut response.kvs);
        Ok(response)
    }

    /// Like [`Client::list`].
    ///
    /// # Errors
    /// If the key is empty.
    pub fn list(&self, request: impl Into<RangeRequest>) -> Result<NamespaceList, ClientError> {
        let mut request: RangeRequest = request.into();
        self.client.check(&request)?;
        self.prefix.add_to_range(&mut request);
        Ok(NamespaceList {
            list: self.client.list(request),
            prefix: self.prefix.clone(),
        })
    }

    /// Like [`Client::put`].
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn put(&self, request: impl Into<PutRequest>) -> Result<PutResponse, ClientError> {
        let mut request: PutRequest = request.into();
        self.client.check(&request)?;
        self.prefix.add_to_key(&mut request.key);
        let mut response = self.client.put(request).await?;
        self.prefix.remove_from_pairs(&mut response.prev_kv);
        Ok(response)
    }

    /// Like [`Client::delete_range`].
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn delete_range(
        &self,
        request: impl Into<DeleteRangeRequest>,
    ) -> Result<DeleteRangeResponse, ClientError> {
        let mut request: DeleteRangeRequest = request.into();
        self.client.check(&request)?;
        self.prefix.add_to_delete(&mut request);
        let mut response = self.client.delete_range(request).await?;
        self.prefix.remove_from_pairs(&mut response.prev_kvs);
        Ok(response)
    }

    /// Like [`Client::txn`].
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn txn(&self, request: impl Into<TxnRequest>) -> Result<TxnResponse, ClientError> {
        let mut request: TxnRequest = request.into();
        self.client.check(&request)?;
        self.prefix.add_to_txn(&mut request);
        let mut response = self.client.txn(request).await?;
        self.prefix.remove_from_txn(&mut response);
        Ok(response)
    }

    /// Like [`Client::watch`].
    #[must_use]
    pub fn watch(&self, create: impl Into<WatchCreateRequest>) -> NamespaceWatcher {
        let mut create: WatchCreateRequest = create.into();
        self.prefix.add_to_watch(&mut create);
        NamespaceWatcher {
            watcher: self.client.watch(create),
            prefix: self.prefix.clone(),
        }
    }

    /// Like [`Client::lease_time_to_live`]; only keys of the namespace are returned.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn lease_time_to_live(
        &self,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, ClientError> {
        let mut response = self.client.lease_time_to_live(request).await?;
        self.prefix.remove_from_keys(&mut response.keys);
        Ok(response)
    }
}

impl NamespaceWatcher {
    /// Like [`Watcher::next`].
    ///
    /// # Errors
    /// The server's error, except `Unavailable`: then the watch is resumed.
    pub async fn next(&mut self) -> Result<Option<WatchResponse>, ClientError> {
        let mut response = self.watcher.next().await?;
        if let Some(response) = &mut response {
            for event in &mut response.events {
                self.prefix.remove_from_pairs(&mut event.kv);
                self.prefix.remove_from_pairs(&mut event.prev_kv);
            }
        }
        Ok(response)
    }

    /// Like [`Watcher::progress_requester`].
    #[must_use]
    pub fn progress_requester(&self) -> ProgressRequester {
        self.watcher.progress_requester()
    }
}

impl NamespaceList {
    /// Like [`List::revision`].
    #[must_use]
    pub fn revision(&self) -> Option<i64> {
        self.list.revision()
    }

    /// Like [`List::next`].
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn next(&mut self) -> Result<Option<KeyValue>, ClientError> {
        let mut kv = self.list.next().await?;
        self.prefix.remove_from_pairs(&mut kv);
        Ok(kv)
    }
}
