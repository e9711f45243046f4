//! Keys: reads, writes, deletions, transactions, compaction.

use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse, request_op,
};
use tonic::transport::Channel;

use crate::connection::{Client, RetryPolicy};
use crate::error::ClientError;

impl Client {
    fn kv(&self, channel: Channel) -> KvClient<Channel> {
        KvClient::new(channel)
            .max_encoding_message_size(self.options().request_bytes_max)
            .max_decoding_message_size(self.options().response_bytes_max)
    }

    /// Reads a key or a range.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, ClientError> {
        self.call(RetryPolicy::Repeatable, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move { kv.range(request).await }
        })
        .await
    }

    /// Reads a range with a streaming call, so that the server never holds the whole response.
    ///
    /// # Errors
    /// The server's error, or a timeout. A server before 3.7 does not implement the call.
    pub async fn range_stream(&self, request: RangeRequest) -> Result<RangeResponse, ClientError> {
        self.call(RetryPolicy::Repeatable, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move {
                let mut stream = kv.range_stream(request).await?.into_inner();
                let mut whole = RangeResponse::default();
                while let Some(piece) = stream.message().await? {
                    let Some(mut piece) = piece.range_response else {
                        continue;
                    };
                    whole.kvs.append(&mut piece.kvs);
                    // Only the last piece contains these fields.
                    whole.header = piece.header.or(whole.header);
                    whole.more |= piece.more;
                    whole.count = whole.count.max(piece.count);
                }
                Ok(tonic::Response::new(whole))
            }
        })
        .await
    }

    /// Writes a key.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn put(&self, request: PutRequest) -> Result<PutResponse, ClientError> {
        self.call(RetryPolicy::NonRepeatable, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move { kv.put(request).await }
        })
        .await
    }

    /// Deletes a key or a range.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, ClientError> {
        self.call(RetryPolicy::NonRepeatable, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move { kv.delete_range(request).await }
        })
        .await
    }

    /// Runs a transaction. A read-only one is retried on another endpoint like a read.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, ClientError> {
        let mut operations = request.success.iter().chain(&request.failure);
        let only_reads = operations.all(|operation| {
            matches!(
                operation.request,
                Some(request_op::Request::RequestRange(_))
            )
        });
        let retry = if only_reads {
            RetryPolicy::Repeatable
        } else {
            RetryPolicy::NonRepeatable
        };
        self.call(retry, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move { kv.txn(request).await }
        })
        .await
    }

    /// Compacts the history before a revision.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn compact(
        &self,
        request: CompactionRequest,
    ) -> Result<CompactionResponse, ClientError> {
        self.call(RetryPolicy::NonRepeatable, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request));
            async move { kv.compact(request).await }
        })
        .await
    }
}
