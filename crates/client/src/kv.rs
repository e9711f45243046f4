//! Keys: reads, writes, deletions, transactions, compaction.

use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse, request_op,
};
use tonic::transport::Channel;

use crate::arguments::Checked;
use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;

impl Client {
    pub(crate) fn kv(&self, channel: Channel) -> KvClient<Channel> {
        KvClient::new(channel)
            .max_encoding_message_size(self.options().request_bytes_max)
            .max_decoding_message_size(self.options().response_bytes_max)
    }

    /// Checks a request before it is sent.
    pub(crate) fn check(&self, request: &impl Checked) -> Result<(), ClientError> {
        Ok(request.check(self.options().request_bytes_max)?)
    }

    /// Reads a key or a range.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn range(
        &self,
        request: impl Into<RangeRequest>,
    ) -> Result<RangeResponse, ClientError> {
        let request: RangeRequest = request.into();
        self.check(&request)?;
        self.call(calls::RANGE, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move { kv.range(request).await }
        })
        .await
    }

    /// Reads a range with a streaming call, so that the server never holds the whole response.
    ///
    /// # Errors
    /// The server's error, or a timeout. A server before 3.7 does not implement the call.
    pub async fn range_stream(
        &self,
        request: impl Into<RangeRequest>,
    ) -> Result<RangeResponse, ClientError> {
        let request: RangeRequest = request.into();
        self.check(&request)?;
        self.call(calls::RANGE_STREAM, |channel| {
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
    pub async fn put(&self, request: impl Into<PutRequest>) -> Result<PutResponse, ClientError> {
        let request: PutRequest = request.into();
        self.check(&request)?;
        self.call(calls::PUT, |channel| {
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
        request: impl Into<DeleteRangeRequest>,
    ) -> Result<DeleteRangeResponse, ClientError> {
        let request: DeleteRangeRequest = request.into();
        self.check(&request)?;
        self.call(calls::DELETE_RANGE, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request.clone()));
            async move { kv.delete_range(request).await }
        })
        .await
    }

    /// Runs a transaction. A read-only one is retried on another endpoint like a read.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn txn(&self, request: impl Into<TxnRequest>) -> Result<TxnResponse, ClientError> {
        let request: TxnRequest = request.into();
        self.check(&request)?;
        let call = match only_reads(&request) {
            true => calls::READ_ONLY_TXN,
            false => calls::TXN,
        };
        self.call(call, |channel| {
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
        self.call(calls::COMPACT, |channel| {
            let (mut kv, request) = (self.kv(channel), self.request(request));
            async move { kv.compact(request).await }
        })
        .await
    }
}

/// Returns whether a transaction changes nothing, whichever branch runs.
pub(crate) fn only_reads(txn: &TxnRequest) -> bool {
    let mut operations = txn.success.iter().chain(&txn.failure);
    operations.all(|operation| {
        matches!(
            operation.request,
            Some(request_op::Request::RequestRange(_))
        )
    })
}
