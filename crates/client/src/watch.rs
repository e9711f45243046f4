//! A watch that resumes after a lost connection.
//!
//! ```text
//!  Opening ──created──▶ Watching ──canceled──▶ over
//!     ▲                    │
//!     └── Unavailable ─────┘   resumes after the last received event
//! ```
//!
//! Each watch has its own stream.

use std::time::Duration;

use portunus_proto::etcdserverpb::watch_client::WatchClient;
use portunus_proto::etcdserverpb::{
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, watch_request,
};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::connection::Client;
use crate::error::ClientError;
use crate::watch_streams::Position;

/// Queued requests per watch stream.
const REQUESTS_QUEUED_MAX: usize = 16;
/// Pause before a broken stream is opened again.
const RESUME_PAUSE: Duration = Duration::from_millis(100);

/// A watch; see [`Client::watch`].
#[derive(Debug)]
pub struct Watcher {
    client: Client,
    create: WatchCreateRequest,
    position: Position,
    progress_asked: mpsc::Receiver<()>,
    progress_asker: mpsc::Sender<()>,
    stream: Option<OpenStream>,
    canceled: bool,
}

#[derive(Debug)]
struct OpenStream {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    generation: u64,
}

/// Requests a progress notice of a watch.
#[derive(Debug, Clone)]
pub struct ProgressRequester(mpsc::Sender<()>);

impl ProgressRequester {
    /// Queues the request; [`Watcher::next`] sends it. Has no effect if the watch is over.
    pub async fn request(&self) {
        // Fails only if the watch is over.
        let _ = self.0.send(()).await;
    }
}

impl Client {
    /// Watches a key or range. The first [`Watcher::next`] opens the stream.
    #[must_use]
    pub fn watch(&self, create: impl Into<WatchCreateRequest>) -> Watcher {
        let (progress_asker, progress_asked) = mpsc::channel(REQUESTS_QUEUED_MAX);
        let create: WatchCreateRequest = create.into();
        Watcher {
            client: self.clone(),
            position: Position::from_start(create.start_revision),
            create,
            progress_asked,
            progress_asker,
            stream: None,
            canceled: false,
        }
    }
}

impl Watcher {
    /// Returns a handle that requests progress while another task waits in [`Self::next`].
    #[must_use]
    pub fn progress_requester(&self) -> ProgressRequester {
        ProgressRequester(self.progress_asker.clone())
    }

    /// Waits for events, a progress notice or a cancellation; returns `None` after a
    /// cancellation. The response that confirms the creation is not returned. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// The server's error, except `Unavailable`: then the watch is resumed after the last event, and
    /// none is lost or repeated.
    pub async fn next(&mut self) -> Result<Option<WatchResponse>, ClientError> {
        while !self.canceled {
            match self.receive().await {
                Ok(mut response) => {
                    self.canceled = response.canceled;
                    if self.accept(&mut response)? {
                        return Ok(Some(response));
                    }
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
        Ok(None)
    }

    /// Notes how far the watch has come and removes repeated events; returns whether the response
    /// says anything to the caller.
    fn accept(&mut self, response: &mut WatchResponse) -> Result<bool, ClientError> {
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        if response.canceled {
            return Ok(true);
        }
        if response.created {
            self.position.begin(revision);
        }
        let had_events = !response.events.is_empty();
        let accepted = self
            .position
            .accept(&mut response.events, response.fragment);
        accepted.map_err(|out_of_order| ClientError::Canceled {
            reason: format!(
                "the server sent an event of revision {} after later ones",
                out_of_order.revision
            ),
        })?;
        if !had_events && !response.created {
            self.position.accept_progress(revision);
        }
        self.create.start_revision = self.position.next_revision;
        Ok(match had_events {
            true => !response.events.is_empty(),
            false => !response.created,
        })
    }

    async fn receive(&mut self) -> Result<WatchResponse, ClientError> {
        self.client.check(&self.create)?;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(open(&self.client, &self.create).await?),
        };
        loop {
            tokio::select! {
                message = stream.responses.message() => {
                    return message?.ok_or(ClientError::StreamEnded);
                }
                Some(()) = self.progress_asked.recv() => {
                    let request = watch_request::RequestUnion::ProgressRequest(WatchProgressRequest {});
                    // If the stream has ended, the other branch notices it.
                    let _ = stream.requests.send(wrapped(request)).await;
                }
            }
        }
    }
}

async fn open(client: &Client, create: &WatchCreateRequest) -> Result<OpenStream, ClientError> {
    let (requests, outgoing) = mpsc::channel(REQUESTS_QUEUED_MAX);
    client.renew_token_for_stream().await?;
    let (channel, generation) = client.pick_connection().await;
    let create = watch_request::RequestUnion::CreateRequest(create.clone());
    // Cannot fail: the receiver is in this function.
    let _ = requests.send(wrapped(create)).await;
    let request = client.request_with_leader(ReceiverStream::new(outgoing));
    let opened = WatchClient::new(channel)
        .max_decoding_message_size(client.options().response_bytes_max)
        .watch(request)
        .await;
    match opened {
        Ok(responses) => Ok(OpenStream {
            requests,
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

fn wrapped(union: watch_request::RequestUnion) -> WatchRequest {
    WatchRequest {
        request_union: Some(union),
    }
}
