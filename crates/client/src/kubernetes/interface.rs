//! The trait, its options and its responses.
//!
//! Options and responses are structs, so that the contract can grow: create them with
//! `..Default::default()`.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Error, WatchEvents};

/// The operations that Kubernetes needs of its store.
///
/// Every transaction has one revision. Revisions are compared, never computed.
#[async_trait]
pub trait Interface: Send + Sync {
    /// Reads a key. A key that does not exist is not an error.
    ///
    /// # Errors
    /// [`Error::Compacted`] and [`Error::FutureRevision`] if the revision cannot be read; errors of
    /// the connection and the server.
    async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error>;

    /// Reads the keys with a prefix, in the order of the keys.
    ///
    /// # Errors
    /// [`Error::EmptyPrefix`] and [`Error::ContinueOutsidePrefix`] before anything is sent;
    /// [`Error::Compacted`] and [`Error::FutureRevision`] if the revision cannot be read; errors of
    /// the connection and the server.
    async fn list(&self, prefix: &[u8], options: ListOptions) -> Result<ListResponse, Error>;

    /// Returns the number of keys with a prefix at the newest revision. The empty prefix counts all
    /// keys.
    ///
    /// # Errors
    /// Errors of the connection and the server.
    async fn count(&self, prefix: &[u8], options: CountOptions) -> Result<i64, Error>;

    /// Writes a key if its mod revision is `expected_revision`; 0 stands for a key that does not
    /// exist. A mismatch is not an error.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`] if the lease does not exist; errors of the connection and the
    /// server.
    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        expected_revision: i64,
        options: PutOptions,
    ) -> Result<PutResponse, Error>;

    /// Deletes a key if its mod revision is `expected_revision`. A mismatch is not an error. With 0
    /// and a key that does not exist it succeeds and changes nothing.
    ///
    /// # Errors
    /// Errors of the connection and the server.
    async fn optimistic_delete(
        &self,
        key: &[u8],
        expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error>;

    /// Watches a key, or all keys with a prefix, from the revision after the given one. Returns
    /// when the store has created the watch: the watch has every later change.
    ///
    /// # Errors
    /// Errors of arguments before anything is sent, and errors of the connection. A compacted
    /// revision and everything later is an [event](super::WatchEvent::Error).
    async fn watch(&self, key: &[u8], options: WatchOptions) -> Result<WatchEvents, Error>;

    /// Requests a bookmark for all watches of a stream. The store sends it when all of them have
    /// received every event up to its revision.
    ///
    /// # Errors
    /// [`Error::UnknownStream`] if no watch uses the stream.
    async fn request_progress(&self, options: RequestProgressOptions) -> Result<(), Error>;

    /// Grants a lease for [`PutOptions::lease_id`] and returns its id. Keys of the lease are deleted
    /// when its TTL has passed; nothing renews it. Go's interface has no such operation:
    /// kube-apiserver grants leases with the client beside it. An implementation without leases
    /// keeps this method.
    ///
    /// # Errors
    /// [`Error::NoLeases`] if the implementation has no leases; errors of the connection and the
    /// server.
    async fn grant_lease(&self, ttl: Duration) -> Result<i64, Error> {
        let _ = ttl;
        Err(Error::NoLeases)
    }
}

/// A key, its value and its revisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision of the last change: the resource version of Kubernetes.
    pub mod_revision: i64,
    /// The revision of the creation.
    pub create_revision: i64,
    /// The number of writes since the creation.
    pub version: i64,
    /// The lease, or 0.
    pub lease: i64,
}

/// Options of [`Interface::get`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The revision to read, or 0 for the newest.
    pub revision: i64,
}

/// Response of [`Interface::get`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetResponse {
    /// The pair, if the key exists at the revision.
    pub kv: Option<KeyValue>,
    /// The revision of the store when it answered, also for reads of older revisions.
    pub revision: i64,
}

/// Options of [`Interface::list`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// The revision to read, or 0 for the newest.
    pub revision: i64,
    /// The largest number of pairs, or 0 for all.
    pub limit: i64,
    /// The first key to return, or empty for the first with the prefix. To go on after a key,
    /// append a zero byte to it.
    pub continue_key: Bytes,
}

/// Response of [`Interface::list`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListResponse {
    /// The pairs, at most as many as the limit.
    pub kvs: Vec<KeyValue>,
    /// The number of keys from the first to the end of the prefix, whatever the limit. There are
    /// more pairs to read if it is larger than the number of pairs.
    pub count: i64,
    /// The revision of the store when it answered.
    pub revision: i64,
}

/// Options of [`Interface::count`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountOptions {}

/// Options of [`Interface::optimistic_put`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Whether to return the current pair on a mismatch.
    pub get_on_failure: bool,
    /// The lease of the key from now on, or 0 for none. Deprecated by KEP-4743 in favour of a TTL
    /// for each object.
    pub lease_id: i64,
}

/// Response of [`Interface::optimistic_put`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutResponse {
    /// Whether the key had the expected revision and was written.
    pub succeeded: bool,
    /// The current pair: only on a mismatch, if requested and if the key exists.
    pub kv: Option<KeyValue>,
    /// The revision of the store; on success the new mod revision of the key.
    pub revision: i64,
}

/// Options of [`Interface::optimistic_delete`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Whether to return the current pair on a mismatch.
    pub get_on_failure: bool,
}

/// Response of [`Interface::optimistic_delete`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteResponse {
    /// Whether the key had the expected revision and was deleted.
    pub succeeded: bool,
    /// The current pair: only on a mismatch, if requested and if the key exists.
    pub kv: Option<KeyValue>,
    /// The revision of the store; on success that of the deletion.
    pub revision: i64,
}

/// Options of [`Interface::watch`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// The stream to use. Watches with the same stream key share one stream to the store; the empty
    /// key is the default stream.
    pub stream_key: String,
    /// The revision after which the watch begins, or 0 for the newest.
    pub revision: i64,
    /// Whether to watch all keys with the prefix instead of one key.
    pub prefix: bool,
}

/// Options of [`Interface::request_progress`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestProgressOptions {
    /// The stream, as in [`WatchOptions`].
    pub stream_key: String,
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// Compiles only for types that are created without naming every field, so that a new field
    /// breaks neither callers nor implementations.
    fn assert_can_grow<T: Default + Clone + Debug + PartialEq>() {
        assert_eq!(T::default(), T::default().clone());
    }

    /// Proves: S4-2
    #[test]
    fn options_and_responses_have_defaults_so_that_fields_can_be_added() {
        assert_can_grow::<GetOptions>();
        assert_can_grow::<GetResponse>();
        assert_can_grow::<ListOptions>();
        assert_can_grow::<ListResponse>();
        assert_can_grow::<CountOptions>();
        assert_can_grow::<PutOptions>();
        assert_can_grow::<PutResponse>();
        assert_can_grow::<DeleteOptions>();
        assert_can_grow::<DeleteResponse>();
        assert_can_grow::<WatchOptions>();
        assert_can_grow::<RequestProgressOptions>();
        assert_can_grow::<KeyValue>();
    }

    /// Proves: S4-A4
    #[test]
    fn field_names_are_those_of_the_go_interface_in_snake_case() {
        let GetOptions { revision: _ } = GetOptions::default();
        let GetResponse { kv: _, revision: _ } = GetResponse::default();
        let ListOptions {
            revision: _,
            limit: _,
            // `Continue` in Go, which is a keyword here.
            continue_key: _,
        } = ListOptions::default();
        let ListResponse {
            kvs: _,
            count: _,
            revision: _,
        } = ListResponse::default();
        let CountOptions {} = CountOptions::default();
        let PutOptions {
            get_on_failure: _,
            lease_id: _,
        } = PutOptions::default();
        let PutResponse {
            succeeded: _,
            kv: _,
            revision: _,
        } = PutResponse::default();
        let DeleteOptions { get_on_failure: _ } = DeleteOptions::default();
        let DeleteResponse {
            succeeded: _,
            kv: _,
            revision: _,
        } = DeleteResponse::default();
    }
}
