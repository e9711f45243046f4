//! A store in memory that can be emptied, because to create a service takes much longer than to
//! answer a request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use portunus_client::kubernetes::{
    CountOptions, DeleteOptions, DeleteResponse, Error, GetOptions, GetResponse, Interface,
    ListOptions, ListResponse, Memory, PutOptions, PutResponse, RequestProgressOptions,
    WatchEvents, WatchOptions,
};

/// The store of the current input.
pub(crate) struct FreshStore(Mutex<Arc<Memory>>);

impl FreshStore {
    /// An empty store.
    pub(crate) fn new() -> FreshStore {
        FreshStore(Mutex::new(Arc::new(Memory::new())))
    }

    /// Empties the store.
    pub(crate) fn replace(&self) {
        *self.0.lock().expect("an unpoisoned lock") = Arc::new(Memory::new());
    }

    fn current(&self) -> Arc<Memory> {
        Arc::clone(&self.0.lock().expect("an unpoisoned lock"))
    }
}

#[async_trait]
impl Interface for FreshStore {
    async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error> {
        self.current().get(key, options).await
    }

    async fn list(&self, prefix: &[u8], options: ListOptions) -> Result<ListResponse, Error> {
        self.current().list(prefix, options).await
    }

    async fn count(&self, prefix: &[u8], options: CountOptions) -> Result<i64, Error> {
        self.current().count(prefix, options).await
    }

    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        expected_revision: i64,
        options: PutOptions,
    ) -> Result<PutResponse, Error> {
        let store = self.current();
        store
            .optimistic_put(key, value, expected_revision, options)
            .await
    }

    async fn optimistic_delete(
        &self,
        key: &[u8],
        expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error> {
        let store = self.current();
        store
            .optimistic_delete(key, expected_revision, options)
            .await
    }

    async fn watch(&self, key: &[u8], options: WatchOptions) -> Result<WatchEvents, Error> {
        self.current().watch(key, options).await
    }

    async fn request_progress(&self, options: RequestProgressOptions) -> Result<(), Error> {
        self.current().request_progress(options).await
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<i64, Error> {
        Interface::grant_lease(&*self.current(), ttl).await
    }
}
