//! Feature gates: their status, the history of decisions, and a watch on new decisions.
//!
//! [`Client::requiring`] makes calls require a feature. A server without feature gates ignores
//! it, so call [`Client::feature_gate_status`] first, which fails there.

use std::time::Duration;

use portunus_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use portunus_proto::etcdserverpb::{FeatureGateStatusRequest, FeatureGateStatusResponse};
use portunus_proto::portunuspb::feature_gates_client::FeatureGatesClient;
use portunus_proto::portunuspb::{HistoryRequest, HistoryResponse, WatchRequest, WatchResponse};
use tokio::time::sleep;
use tonic::Streaming;

use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;

/// The pause before a broken stream is opened again.
const RESUME_PAUSE: Duration = Duration::from_millis(100);

impl Client {
    /// Returns the status of features: the cluster's, or those of the member that answers.
    ///
    /// # Errors
    /// The server's error, or a timeout. A server without feature gates does not implement the
    /// call.
    pub async fn feature_gate_status(
        &self,
        request: FeatureGateStatusRequest,
    ) -> Result<FeatureGateStatusResponse, ClientError> {
        self.call(calls::FEATURE_GATE_STATUS, |channel| {
            let request = self.request(request.clone());
            async move {
                MaintenanceClient::new(channel)
                    .feature_gate_status(request)
                    .await
            }
        })
        .await
    }

    /// Returns the retained decisions about the cluster's features, oldest first.
    ///
    /// # Errors
    /// The server's error, or a timeout. Only Portunus implements the call.
    pub async fn gate_history(
        &self,
        request: HistoryRequest,
    ) -> Result<HistoryResponse, ClientError> {
        self.call(calls::GATE_HISTORY, |channel| {
            let request = self.request(request);
            async move { FeatureGatesClient::new(channel).history(request).await }
        })
        .await
    }

    /// Watches the decisions about the cluster's features. The first [`GateWatcher::next`]
    /// opens the stream.
    #[must_use]
    pub fn gate_watch(&self, request: WatchRequest) -> GateWatcher {
        GateWatcher {
            client: self.clone(),
            request,
            stream: None,
        }
    }
}

/// A watch on decisions that resumes after a lost connection; see [`Client::gate_watch`].
#[derive(Debug)]
pub struct GateWatcher {
    client: Client,
    /// Advanced with each decision, so that a resumed stream repeats and skips none.
    request: WatchRequest,
    stream: Option<OpenStream>,
}

#[derive(Debug)]
struct OpenStream {
    responses: Streaming<WatchResponse>,
    generation: u64,
}

impl GateWatcher {
    /// Waits for the next decision without a time limit.
    ///
    /// # Errors
    /// The server's error, except `Unavailable`: then the watch resumes on another endpoint
    /// after the last received decision.
    pub async fn next(&mut self) -> Result<WatchResponse, ClientError> {
        loop {
            match self.receive().await {
                Ok(response) => {
                    let seen = response.decision.as_ref().map_or(0, |it| it.index);
                    self.request.after_index = self.request.after_index.max(seen);
                    return Ok(response);
                }
                Err(error) if error.is_unavailable() => {
                    if let Some(stream) = self.stream.take() {
                        self.client.disconnect(stream.generation, &error);
                    }
                    sleep(RESUME_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn receive(&mut self) -> Result<WatchResponse, ClientError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(open(&self.client, self.request).await?),
        };
        let received = stream.responses.message().await;
        let received = received.map_err(|status| ClientError::of_call(calls::GATE_WATCH, status));
        received?.ok_or(ClientError::StreamEnded)
    }
}

async fn open(client: &Client, request: WatchRequest) -> Result<OpenStream, ClientError> {
    client.renew_token_for_stream().await?;
    let (channel, generation) = client.pick_connection().await;
    let request = client.request(request);
    match FeatureGatesClient::new(channel).watch(request).await {
        Ok(responses) => Ok(OpenStream {
            responses: responses.into_inner(),
            generation,
        }),
        Err(status) => {
            let error = ClientError::of_call(calls::GATE_WATCH, status);
            client.disconnect(generation, &error);
            Err(error)
        }
    }
}
