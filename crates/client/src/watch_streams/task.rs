//! The task of one stream: opens it, sends requests, hands responses to buffers, and opens it
//! again when it breaks. It ends when no watch is left.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portunus_proto::etcdserverpb::watch_client::WatchClient;
use portunus_proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::buffer::Buffer;
use super::end::{WatchEnd, copy_of};
use super::multiplexer::{Effect, Multiplexer, WatchNumber};
use super::position::Position;
use crate::connection::Client;
use crate::error::ClientError;

/// Requests that may wait in a stream; a server that reads none of them is disconnected.
const REQUESTS_QUEUED_MAX: usize = 1024;
/// Pause before a broken stream is opened again.
const RESUME_PAUSE: Duration = Duration::from_millis(100);
/// How long all watches of a stream wait for one with a full buffer before it is paused.
const SLOW_CONSUMER_WAIT_MAX: Duration = Duration::from_millis(100);

/// What consumers tell the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Create a watch.
    Create {
        /// Its number.
        number: WatchNumber,
        /// The request.
        create: WatchCreateRequest,
        /// Where its responses go.
        buffer: Arc<Buffer>,
        /// Answered when the server has created it.
        created: oneshot::Sender<Result<(), WatchEnd>>,
    },
    /// The consumer has emptied the buffer of a paused watch.
    Resume(WatchNumber),
    /// Drop a watch.
    Remove(WatchNumber),
    /// Request progress.
    Progress,
}

/// The state of the task.
pub(super) struct StreamTask {
    client: Client,
    commands: mpsc::UnboundedReceiver<Command>,
    multiplexer: Multiplexer,
    buffers: BTreeMap<WatchNumber, Arc<Buffer>>,
    creations: BTreeMap<WatchNumber, oneshot::Sender<Result<(), WatchEnd>>>,
    /// Whether a progress request waits in `commands`.
    is_progress_queued: Arc<AtomicBool>,
    requests: Option<mpsc::Sender<WatchRequest>>,
}

/// Why a stream is not served any longer.
enum Stop {
    /// No handle of the stream is left.
    NoWatches,
    /// The stream failed.
    Failed(ClientError),
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Self {
        Self::Failed(error)
    }
}

impl StreamTask {
    pub(super) fn new(
        client: Client,
        commands: mpsc::UnboundedReceiver<Command>,
        is_progress_queued: Arc<AtomicBool>,
    ) -> Self {
        Self {
            client,
            commands,
            multiplexer: Multiplexer::default(),
            buffers: BTreeMap::new(),
            creations: BTreeMap::new(),
            is_progress_queued,
            requests: None,
        }
    }

    /// Runs until no handle of the stream is left.
    pub(super) async fn run(mut self) {
        loop {
            let stop = match self.wait_for_watch().await {
                Ok(()) => self.serve().await,
                Err(stop) => stop,
            };
            self.requests = None;
            self.multiplexer.disconnected();
            match stop {
                Stop::NoWatches => return,
                Stop::Failed(error) if self.is_repaired_by_new_stream(&error) => {
                    if self.pause().await.is_err() {
                        return;
                    }
                }
                Stop::Failed(error) => self.end_all(&error),
            }
        }
    }

    /// Returns whether a watch can go on in a new stream after an error.
    fn is_repaired_by_new_stream(&self, error: &ClientError) -> bool {
        // clientv3 resumes after the first two. This client never cancels a stream that it reads,
        // so that a canceled one was ended by a server that stops.
        matches!(
            error.code(),
            Code::Unavailable | Code::Internal | Code::Cancelled
        ) || self.client.identity().may_recover_from(error)
    }

    async fn wait_for_watch(&mut self) -> Result<(), Stop> {
        while self.multiplexer.is_empty() {
            let command = self.commands.recv().await;
            self.command(command).await?;
        }
        Ok(())
    }

    async fn pause(&mut self) -> Result<(), Stop> {
        let mut pause = pin!(sleep(RESUME_PAUSE));
        loop {
            tokio::select! {
                () = &mut pause => return Ok(()),
                command = self.commands.recv() => self.command(command).await?,
            }
        }
    }

    /// Opens a stream and serves it until it fails or no handle is left.
    async fn serve(&mut self) -> Stop {
        match self.try_serve().await {
            Ok(never) => match never {},
            Err(stop) => stop,
        }
    }

    async fn try_serve(&mut self) -> Result<std::convert::Infallible, Stop> {
        let (requests, outgoing) = mpsc::channel(REQUESTS_QUEUED_MAX);
        self.requests = Some(requests);
        let effects = self.multiplexer.connected();
        self.perform(effects).await?;
        // The first creation is sent before, because a server sends no headers before its first
        // response.
        let mut opening = pin!(open(self.client.clone(), outgoing));
        let (mut responses, generation) = loop {
            tokio::select! {
                opened = &mut opening => break opened?,
                command = self.commands.recv() => self.command(command).await?,
            }
        };
        let stop = self.serve_open(&mut responses).await;
        if let Stop::Failed(error) = &stop {
            self.client.disconnect(generation, error);
        }
        Err(stop)
    }

    async fn serve_open(&mut self, responses: &mut Streaming<WatchResponse>) -> Stop {
        loop {
            let handled = tokio::select! {
                message = responses.message() => match message {
                    Ok(Some(response)) => {
                        let effects = self.multiplexer.response(response);
                        self.perform(effects).await
                    }
                    Ok(None) => Err(Stop::Failed(ClientError::StreamEnded)),
                    Err(status) => Err(Stop::Failed(status.into())),
                },
                command = self.commands.recv() => self.command(command).await,
            };
            if let Err(stop) = handled {
                return stop;
            }
        }
    }

    /// Executes a command; `None` stands for the end of all handles.
    async fn command(&mut self, command: Option<Command>) -> Result<(), Stop> {
        let effects = match command.ok_or(Stop::NoWatches)? {
            Command::Create {
                number,
                create,
                buffer,
                created,
            } => {
                self.buffers.insert(number, buffer);
                self.creations.insert(number, created);
                self.multiplexer.add(number, create)
            }
            Command::Resume(number) => self.multiplexer.resume(number),
            Command::Remove(number) => {
                self.buffers.remove(&number);
                self.creations.remove(&number);
                self.multiplexer.remove(number)
            }
            Command::Progress => {
                self.is_progress_queued.store(false, Ordering::Release);
                self.multiplexer.request_progress()
            }
        };
        self.perform(effects).await
    }

    async fn perform(&mut self, effects: Vec<Effect>) -> Result<(), Stop> {
        for effect in effects {
            match effect {
                Effect::Send(request) => self.send(request)?,
                Effect::Created(watch) => {
                    if let Some(created) = self.creations.remove(&watch) {
                        // Fails only if the consumer is gone; then a removal follows.
                        let _ = created.send(Ok(()));
                    }
                }
                Effect::Deliver {
                    watch,
                    response,
                    before,
                } => self.deliver(watch, response, before).await?,
                Effect::TokenRefused { watch, error } => {
                    let error = ClientError::Etcd(error);
                    if self.client.identity().may_recover_from(&error) {
                        return Err(Stop::Failed(error));
                    }
                    let effects = self.multiplexer.remove(watch);
                    debug_assert!(effects.is_empty(), "the server has no such watch");
                    self.end(watch, WatchEnd::Client(error));
                }
                Effect::End { watch, end } => self.end(watch, end),
            }
        }
        Ok(())
    }

    fn send(&self, request: WatchRequest) -> Result<(), Stop> {
        match &self.requests {
            Some(requests) if requests.try_send(request).is_err() => {
                Err(Stop::Failed(ClientError::StreamEnded))
            }
            // Without a stream there is nothing to cancel.
            _ => Ok(()),
        }
    }

    /// Gives a response to a watch; pauses the watch if its consumer is too slow.
    async fn deliver(
        &mut self,
        watch: WatchNumber,
        mut response: WatchResponse,
        before: Position,
    ) -> Result<(), Stop> {
        let Some(buffer) = self.buffers.get(&watch).map(Arc::clone) else {
            return Ok(());
        };
        let deadline = Instant::now() + SLOW_CONSUMER_WAIT_MAX;
        loop {
            response = match buffer.push(response) {
                Ok(()) => break,
                Err(response) => response,
            };
            let is_slow = timeout_at(deadline, buffer.space()).await.is_err();
            if is_slow && buffer.pause() {
                for effect in self.multiplexer.pause(watch, before) {
                    if let Effect::Send(cancel) = effect {
                        self.send(cancel)?;
                    }
                }
                return Ok(());
            }
        }
        // Gives the consumer a turn on a runtime with one thread.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Ends a watch, or its creation.
    fn end(&mut self, watch: WatchNumber, end: WatchEnd) {
        let buffer = self.buffers.remove(&watch);
        let end = match self.creations.remove(&watch) {
            Some(created) => match created.send(Err(end)) {
                Ok(()) | Err(Ok(())) => return,
                Err(Err(end)) => end,
            },
            None => end,
        };
        if let Some(buffer) = buffer {
            buffer.end(end);
        }
    }

    fn end_all(&mut self, error: &ClientError) {
        for watch in self.multiplexer.numbers() {
            // Without a stream there is nothing to cancel.
            let _ = self.multiplexer.remove(watch);
            self.end(watch, WatchEnd::Client(copy_of(error)));
        }
    }
}

impl Drop for StreamTask {
    /// Ends the watches if the runtime ends before them.
    fn drop(&mut self) {
        for buffer in self.buffers.values() {
            buffer.end(WatchEnd::Client(ClientError::StreamEnded));
        }
    }
}

async fn open(
    client: Client,
    outgoing: mpsc::Receiver<WatchRequest>,
) -> Result<(Streaming<WatchResponse>, u64), ClientError> {
    client.renew_token_for_stream().await?;
    let (channel, generation) = client.pick_connection().await;
    let request = client.request_with_leader(ReceiverStream::new(outgoing));
    let opened = WatchClient::new(channel)
        .max_decoding_message_size(client.options().response_bytes_max)
        .watch(request)
        .await;
    match opened {
        Ok(responses) => Ok((responses.into_inner(), generation)),
        Err(status) => {
            let error = ClientError::from(status);
            client.disconnect(generation, &error);
            Err(error)
        }
    }
}
