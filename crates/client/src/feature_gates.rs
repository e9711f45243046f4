//! Which features are on, how they came to be so, and what changes about that.
//!
//! To *require* a feature of a call is [`Client::requiring`]. A server that does not know feature
//! gates ignores that, so ask [`Client::feature_gate_status`] first: it fails there.

use std::time::Duration;

use portunus_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use portunus_proto::etcdserverpb::{FeatureGateStatusRequest, FeatureGateStatusResponse};
use portunus_proto::portunuspb::feature_gates_client::FeatureGatesClient;
use portunus_proto::portunuspb::{HistoryRequest, HistoryResponse, WatchRequest, WatchResponse};
use tokio::time::sleep;
use tonic::Streaming;

use crate::connection::{Client, Repeat};
use crate::error::ClientError;

/// Pause before a broken stream is opened again.
const RESUME_PAUSE: Duration = Duration::from_millis(100);

impl Client {
    /// Whether features are on: the cluster's, or those of the member that answers.
    ///
    /// # Errors
    /// What the server answers, or that none did in time. A server without feature gates
    /// answers that the call is not implemented.
    pub async fn feature_gate_status(
        &self,
        request: FeatureGateStatusRequest,
    ) -> Result<FeatureGateStatusResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(request.clone());
            async move {
                MaintenanceClient::new(channel)
                    .feature_gate_status(request)
                    .await
            }
        })
        .await
    }

    /// What was decided about the cluster's features, oldest first, as far back as it is kept.
    ///
    /// # Errors
    /// What the server answers, or that none did in time. Only Portunus has it.
    pub async fn gate_history(
        &self,
        request: HistoryRequest,
    ) -> Result<HistoryResponse, ClientError> {
        self.call(Repeat::Safe, |channel| {
            let request = self.request(request);
            async move { FeatureGatesClient::new(channel).history(request).await }
        })
        .await
    }

    /// Follows the decisions about the cluster's features. The stream is opened by the first
    /// [`GateWatcher::next`].
    #[must_use]
    pub fn gate_watch(&self, request: WatchRequest) -> GateWatcher {
        GateWatcher {
            client: self.clone(),
            request,
            stream: None,
        }
    }
}

/// A stream of decisions that survives the loss of its connection; see [`Client::gate_watch`].
#[derive(Debug)]
pub struct GateWatcher {
    client: Client,
    /// Moves on with what was seen, so that a resumed stream repeats and skips nothing.
    request: WatchRequest,
    stream: Option<OpenStream>,
}

#[derive(Debug)]
struct OpenStream {
    responses: Streaming<WatchResponse>,
    generation: u64,
}

impl GateWatcher {
    /// The next decision; waits for it as long as it takes.
    ///
    /// # Errors
    /// What the server answers, except that it is unavailable: then another endpoint is asked
    /// for what came after the last decision seen.
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
        stream
            .responses
            .message()
            .await?
            .ok_or(ClientError::StreamEnded)
    }
}

async fn open(client: &Client, request: WatchRequest) -> Result<OpenStream, ClientError> {
    let (channel, generation) = client.connected().await;
    let request = client.request(request);
    match FeatureGatesClient::new(channel).watch(request).await {
        Ok(responses) => Ok(OpenStream {
            responses: responses.into_inner(),
            generation,
        }),
        Err(status) => {
            let error = ClientError::from(status);
            client.disconnect(generation, &error);
            Err(error)
        }
    }
}
