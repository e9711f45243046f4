//! The interface over a [`Client`], with the requests that kube-apiserver sends.
//!
//! | operation | request |
//! | --- | --- |
//! | `get` | `Range` of one key, limit 1 |
//! | `list` | `Range` from the prefix or the continue key to the end of the prefix |
//! | `count` | `Range` of the prefix, count only |
//! | `optimistic_put` | `Txn`: if mod revision = expected then `Put` else `Range` |
//! | `optimistic_delete` | `Txn`: if mod revision = expected then `DeleteRange` else `Range` |
//! | `grant_lease` | `LeaseGrant` with an id that the store chooses |
//! | `watch` | `Watch` with previous values and progress notices, in the stream of its key; before it, without a revision, a `get` for the newest one |
//!
//! The `else` branch is empty unless the current pair is requested. Everything is linearizable and
//! requires a leader.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use portunus_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, TxnRequest, TxnResponse, WatchCreateRequest, request_op,
    response_op,
};
use portunus_proto::mvccpb;
use tonic::transport::Channel;

use super::arguments::{check_get, check_list, check_watch, check_write};
use super::etcd_watch::events_of;
use super::{
    CountOptions, DeleteOptions, DeleteResponse, Error, GetOptions, GetResponse, Interface,
    KeyValue, ListOptions, ListResponse, PutOptions, PutResponse, RequestProgressOptions,
    WatchEvents, WatchOptions,
};
use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;
use crate::key_range::prefix_end;
use crate::watch_streams::WatchStreams;

/// The first key of all.
const FIRST_KEY: &[u8] = &[0];

/// The interface to a store that has etcd's API. Clones share connections and streams.
///
/// Watches need a tokio runtime: a task for each stream key runs on it until the last watch of the
/// stream is dropped.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    client: Client,
    streams: WatchStreams,
}

impl Kubernetes {
    /// Creates the interface over a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            streams: client.watch_streams(),
            client,
        }
    }

    /// Creates the interface over a client and its watches, for example with other buffers.
    #[must_use]
    pub fn with_streams(client: Client, streams: WatchStreams) -> Self {
        Self { client, streams }
    }

    /// Returns the client, for what is not part of the interface.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn kv(&self, channel: Channel) -> KvClient<Channel> {
        KvClient::new(channel)
            .max_encoding_message_size(self.client.options().request_bytes_max)
            .max_decoding_message_size(self.client.options().response_bytes_max)
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, ClientError> {
        self.client.check(&request)?;
        self.client
            .call(calls::RANGE, |channel| {
                let mut kv = self.kv(channel);
                let request = self.client.request_with_leader(request.clone());
                async move { kv.range(request).await }
            })
            .await
    }

    /// Runs a transaction that writes: it is not repeated if it may have been sent.
    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, ClientError> {
        self.client.check(&request)?;
        self.client
            .call(calls::TXN, |channel| {
                let mut kv = self.kv(channel);
                let request = self.client.request_with_leader(request.clone());
                async move { kv.txn(request).await }
            })
            .await
    }
}

#[async_trait]
impl Interface for Kubernetes {
    async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error> {
        check_get(key, &options)?;
        let response = self.range(get_request(key, options.revision)).await?;
        if response.kvs.len() > 1 {
            return Err(Error::Contract {
                what: format!("a get returned {} pairs instead of one", response.kvs.len()),
            });
        }
        Ok(GetResponse {
            revision: header_revision(response.header)?,
            kv: response.kvs.into_iter().next().map(KeyValue::from),
        })
    }

    async fn list(&self, prefix: &[u8], options: ListOptions) -> Result<ListResponse, Error> {
        check_list(prefix, &options)?;
        let response = self.range(list_request(prefix, options)).await?;
        Ok(ListResponse {
            revision: header_revision(response.header)?,
            kvs: response.kvs.into_iter().map(KeyValue::from).collect(),
            count: response.count,
        })
    }

    async fn count(&self, prefix: &[u8], _options: CountOptions) -> Result<i64, Error> {
        Ok(self.range(count_request(prefix)).await?.count)
    }

    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        expected_revision: i64,
        options: PutOptions,
    ) -> Result<PutResponse, Error> {
        check_write(key, expected_revision)?;
        let put = request_op::Request::RequestPut(PutRequest {
            key: Bytes::copy_from_slice(key),
            value,
            lease: options.lease_id,
            ..PutRequest::default()
        });
        let request = write_request(key, expected_revision, put, options.get_on_failure);
        let response = self.txn(request).await?;
        let (succeeded, kv, revision) = written(response, options.get_on_failure)?;
        Ok(PutResponse {
            succeeded,
            kv,
            revision,
        })
    }

    async fn optimistic_delete(
        &self,
        key: &[u8],
        expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error> {
        check_write(key, expected_revision)?;
        let delete = request_op::Request::RequestDeleteRange(DeleteRangeRequest {
            key: Bytes::copy_from_slice(key),
            ..DeleteRangeRequest::default()
        });
        let request = write_request(key, expected_revision, delete, options.get_on_failure);
        let response = self.txn(request).await?;
        let (succeeded, kv, revision) = written(response, options.get_on_failure)?;
        Ok(DeleteResponse {
            succeeded,
            kv,
            revision,
        })
    }

    async fn watch(&self, key: &[u8], options: WatchOptions) -> Result<WatchEvents, Error> {
        check_watch(key, &options)?;
        let mut create = watch_request(key, &options);
        let mut after_revision = options.revision;
        if options.revision == 0 {
            // The member that serves the watch may be behind: without a revision it would return
            // earlier changes. A watch from the newest revision itself, without its events, has
            // bookmarks at once; one from the next revision has none before that exists.
            after_revision = self.get(key, GetOptions::default()).await?.revision;
            create.start_revision = after_revision;
        }
        let created = self.streams.watch(&options.stream_key, create).await;
        events_of(created, after_revision)
    }

    async fn request_progress(&self, options: RequestProgressOptions) -> Result<(), Error> {
        let requested = self.streams.request_progress(&options.stream_key);
        requested.map_err(|unknown| Error::UnknownStream {
            stream_key: unknown.stream_key,
        })
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<i64, Error> {
        // Whole seconds, never less than requested.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseGrantRequest {
            ttl: i64::try_from(seconds).unwrap_or(i64::MAX),
            id: 0,
        };
        Ok(self.client.lease_grant(request).await?.id)
    }
}

fn get_request(key: &[u8], revision: i64) -> RangeRequest {
    RangeRequest {
        key: Bytes::copy_from_slice(key),
        limit: 1,
        revision,
        ..RangeRequest::default()
    }
}

fn list_request(prefix: &[u8], options: ListOptions) -> RangeRequest {
    let start = match options.continue_key.is_empty() {
        true => Bytes::copy_from_slice(prefix),
        false => options.continue_key,
    };
    RangeRequest {
        key: start,
        range_end: prefix_end(prefix),
        limit: options.limit,
        revision: options.revision,
        ..RangeRequest::default()
    }
}

fn count_request(prefix: &[u8]) -> RangeRequest {
    let start = if prefix.is_empty() { FIRST_KEY } else { prefix };
    RangeRequest {
        key: Bytes::copy_from_slice(start),
        range_end: prefix_end(prefix),
        count_only: true,
        ..RangeRequest::default()
    }
}

fn write_request(
    key: &[u8],
    expected_revision: i64,
    write: request_op::Request,
    get_on_failure: bool,
) -> TxnRequest {
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: Bytes::copy_from_slice(key),
        target_union: Some(TargetUnion::ModRevision(expected_revision)),
        ..Compare::default()
    };
    let operation = |request| RequestOp {
        request: Some(request),
    };
    let get = RangeRequest {
        key: Bytes::copy_from_slice(key),
        ..RangeRequest::default()
    };
    let failure = get_on_failure.then(|| operation(request_op::Request::RequestRange(get)));
    TxnRequest {
        compare: vec![compare],
        success: vec![operation(write)],
        failure: failure.into_iter().collect(),
    }
}

/// Begins after the revision of the options, if it has one.
fn watch_request(key: &[u8], options: &WatchOptions) -> WatchCreateRequest {
    WatchCreateRequest {
        key: Bytes::copy_from_slice(key),
        range_end: match options.prefix {
            true => prefix_end(key),
            false => Bytes::new(),
        },
        start_revision: match options.revision {
            0 => 0,
            revision => revision.saturating_add(1),
        },
        prev_kv: true,
        progress_notify: true,
        ..WatchCreateRequest::default()
    }
}

/// Returns whether a transaction succeeded, the current pair if it did not, and the revision.
fn written(
    response: TxnResponse,
    get_on_failure: bool,
) -> Result<(bool, Option<KeyValue>, i64), Error> {
    let revision = header_revision(response.header)?;
    if response.succeeded || !get_on_failure {
        return Ok((response.succeeded, None, revision));
    }
    let first = response.responses.into_iter().next();
    match first.and_then(|mut operation| operation.response.take()) {
        Some(response_op::Response::ResponseRange(range)) => {
            let kv = range.kvs.into_iter().next();
            Ok((false, kv.map(KeyValue::from), revision))
        }
        _ => Err(Error::Contract {
            what: "a failed transaction has no answer to the read of its else branch".to_owned(),
        }),
    }
}

fn header_revision(header: Option<ResponseHeader>) -> Result<i64, Error> {
    match header.map_or(0, |header| header.revision) {
        revision if revision > 0 => Ok(revision),
        revision => Err(Error::Contract {
            what: format!("a response has revision {revision}"),
        }),
    }
}

impl From<mvccpb::KeyValue> for KeyValue {
    fn from(kv: mvccpb::KeyValue) -> Self {
        Self {
            key: kv.key,
            value: kv.value,
            mod_revision: kv.mod_revision,
            create_revision: kv.create_revision,
            version: kv.version,
            lease: kv.lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: K5
    #[test]
    fn get_is_a_linearizable_range_of_one_key_with_limit_1() {
        let expected = RangeRequest {
            key: "/registry/pods/a".into(),
            limit: 1,
            revision: 7,
            ..RangeRequest::default()
        };
        assert_eq!(get_request(b"/registry/pods/a", 7), expected);
        assert!(!expected.serializable && expected.range_end.is_empty());
    }

    /// Proves: S4-A1, K7, K31
    #[test]
    fn list_goes_from_the_continue_key_to_the_end_of_the_prefix() {
        let expected = RangeRequest {
            key: "/registry/pods/".into(),
            range_end: "/registry/pods0".into(),
            limit: 500,
            ..RangeRequest::default()
        };
        let first = ListOptions {
            limit: 500,
            ..ListOptions::default()
        };
        assert_eq!(list_request(b"/registry/pods/", first.clone()), expected);
        let next = ListOptions {
            revision: 9,
            continue_key: "/registry/pods/a\0".into(),
            ..first
        };
        let expected = RangeRequest {
            key: "/registry/pods/a\0".into(),
            revision: 9,
            ..expected
        };
        assert_eq!(list_request(b"/registry/pods/", next), expected);
    }

    /// Proves: K33
    #[test]
    fn count_is_a_count_only_range_of_the_prefix() {
        let expected = RangeRequest {
            key: "/registry/pods/".into(),
            range_end: "/registry/pods0".into(),
            count_only: true,
            ..RangeRequest::default()
        };
        assert_eq!(count_request(b"/registry/pods/"), expected);
        let all = count_request(b"");
        assert_eq!((&all.key[..], &all.range_end[..]), (FIRST_KEY, FIRST_KEY));
    }

    /// Proves: K12, K13, K14, K15, K34
    #[test]
    fn write_is_one_compare_one_write_and_at_most_one_read_of_the_same_key() {
        let delete = request_op::Request::RequestDeleteRange(DeleteRangeRequest {
            key: "a".into(),
            ..DeleteRangeRequest::default()
        });
        let create = write_request(b"a", 0, delete.clone(), false);
        assert_eq!(create.compare.len(), 1);
        let compare = &create.compare[0];
        assert_eq!(
            (compare.target(), compare.result()),
            (CompareTarget::Mod, CompareResult::Equal)
        );
        assert_eq!(compare.target_union, Some(TargetUnion::ModRevision(0)));
        assert_eq!(create.success[0].request, Some(delete.clone()));
        assert!(create.failure.is_empty());
        let update = write_request(b"a", 7, delete, true);
        let read = request_op::Request::RequestRange(RangeRequest {
            key: "a".into(),
            ..RangeRequest::default()
        });
        assert_eq!(update.failure.len(), 1);
        assert_eq!(update.failure[0].request, Some(read));
    }

    /// Proves: S4-A6
    #[test]
    fn watch_begins_after_its_revision_with_previous_values_and_progress_notices() {
        let options = WatchOptions {
            revision: 7,
            prefix: true,
            ..WatchOptions::default()
        };
        let expected = WatchCreateRequest {
            key: "/registry/pods/".into(),
            range_end: "/registry/pods0".into(),
            start_revision: 8,
            prev_kv: true,
            progress_notify: true,
            ..WatchCreateRequest::default()
        };
        assert_eq!(watch_request(b"/registry/pods/", &options), expected);
        let one = watch_request(b"a", &WatchOptions::default());
        assert_eq!((one.start_revision, one.range_end.len()), (0, 0));
    }

    #[test]
    fn failed_transaction_without_the_requested_read_breaks_the_contract() {
        let header = Some(ResponseHeader {
            revision: 3,
            ..ResponseHeader::default()
        });
        let response = TxnResponse {
            header,
            ..TxnResponse::default()
        };
        let broken = written(response.clone(), true).unwrap_err();
        assert!(matches!(broken, Error::Contract { .. }), "{broken:?}");
        assert_eq!(written(response, false).unwrap(), (false, None, 3));
        assert!(written(TxnResponse::default(), false).is_err());
    }
}
