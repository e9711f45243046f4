//! Several watches over one gRPC stream, chosen by a key of the stream.
//!
//! A stream costs a server memory and a position in its queues, and progress can only be requested
//! for a whole stream. [`WatchStreams`] lets the caller decide which watches share one.
//!
//! ```text
//!  StreamWatch ──┐ commands   ┌──────────┐ requests
//!  StreamWatch ──┼──────────▶ │ task     │ ─────────▶ server
//!  StreamWatch ◀─┴─ buffers ◀─│ of a key │ ◀───────── responses
//!                             └──────────┘
//! ```
//!
//! - A task for each stream key runs on the tokio runtime of the caller. It ends when the last
//!   watch of the key is dropped.
//! - After a broken connection each watch goes on after the last event it has received: none is
//!   lost, none is repeated, even within a revision that came in fragments.
//! - A consumer that is too slow for its buffer delays the other watches of the stream for a tenth
//!   of a second at most. Then its watch is canceled at the server and created again at its position
//!   when the buffer is empty. It loses nothing unless the history is compacted meanwhile, which
//!   ends it with [`WatchEnd::Compacted`].
//! - Every stream requires a leader: a member that loses it ends the stream, and the watches go on
//!   at another member.

mod buffer;
mod end;
mod multiplexer;
mod position;
mod task;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use portunus_proto::etcdserverpb::{WatchCreateRequest, WatchResponse};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::buffer::{Buffer, Taken};
pub use self::end::WatchEnd;
use self::multiplexer::WatchNumber;
pub(crate) use self::position::Position;
use self::task::{Command, StreamTask};
use crate::connection::Client;
use crate::error::ClientError;

/// The default of the bytes that a watch buffers for its consumer.
const BUFFER_BYTES_DEFAULT: usize = 8 * 1024 * 1024;

/// Watches that share streams. Clones share them, too.
#[derive(Debug, Clone)]
pub struct WatchStreams {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    streams: Mutex<BTreeMap<String, StreamHandle>>,
    watches_created: AtomicU64,
    buffer_bytes_max: usize,
}

/// A stream with at least one watch.
#[derive(Debug)]
struct StreamHandle {
    commands: mpsc::UnboundedSender<Command>,
    watches: usize,
    /// Whether a progress request waits in `commands`, so that there is never more than one.
    is_progress_queued: Arc<AtomicBool>,
}

/// No watch uses a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no watch uses the stream {stream_key:?}: create the watch first")]
pub struct UnknownStream {
    /// The key of the stream.
    pub stream_key: String,
}

impl Client {
    /// Returns watches of this client that can share streams.
    #[must_use]
    pub fn watch_streams(&self) -> WatchStreams {
        WatchStreams::with_buffer(self.clone(), BUFFER_BYTES_DEFAULT)
    }
}

impl WatchStreams {
    /// Creates watches that each buffer this many bytes for their consumer, and a response of any
    /// size if the buffer is empty.
    #[must_use]
    pub fn with_buffer(client: Client, buffer_bytes_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                streams: Mutex::default(),
                watches_created: AtomicU64::new(0),
                buffer_bytes_max,
            }),
        }
    }

    /// Creates a watch in the stream with this key, and the stream if it is the first one. Returns
    /// when the server has created the watch. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the server refuses the watch, or does not create it within the command timeout of the
    /// client.
    pub async fn watch(
        &self,
        stream_key: &str,
        create: WatchCreateRequest,
    ) -> Result<StreamWatch, WatchEnd> {
        let (created, confirmation) = oneshot::channel();
        let number = self.shared.watches_created.fetch_add(1, Ordering::Relaxed);
        let buffer = Arc::new(Buffer::new(self.shared.buffer_bytes_max));
        let command = Command::Create {
            number,
            create,
            buffer: Arc::clone(&buffer),
            created,
        };
        let watch = StreamWatch {
            buffer,
            number,
            commands: Some(self.shared.join(stream_key, command)),
            stream_key: stream_key.to_owned(),
            shared: Arc::clone(&self.shared),
        };
        let confirmed = match self.shared.client.options().command_timeout {
            None => confirmation.await,
            Some(limit) => match timeout(limit, confirmation).await {
                Ok(confirmed) => confirmed,
                Err(_) => {
                    let error = self.shared.client.deadline_exceeded(None);
                    return Err(WatchEnd::Client(error));
                }
            },
        };
        // The task ends early only with its runtime.
        confirmed.unwrap_or(Err(WatchEnd::Client(ClientError::StreamEnded)))?;
        Ok(watch)
    }

    /// Requests a progress notice for all watches of a stream. The server sends it when all of them
    /// have received every event up to its revision; etcd sends none if it cannot do so at once, so
    /// repeat the request. Requests that were not sent yet are combined.
    ///
    /// # Errors
    /// If no watch uses the stream.
    pub fn request_progress(&self, stream_key: &str) -> Result<(), UnknownStream> {
        let streams = self.shared.lock();
        let Some(stream) = streams.get(stream_key) else {
            return Err(UnknownStream {
                stream_key: stream_key.to_owned(),
            });
        };
        if !stream.is_progress_queued.swap(true, Ordering::AcqRel) {
            // Fails only if the runtime of the task has ended; then all watches have.
            let _ = stream.commands.send(Command::Progress);
        }
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, StreamHandle>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a watch to a stream; starts the task of the stream if it is the first one.
    fn join(&self, stream_key: &str, create: Command) -> mpsc::UnboundedSender<Command> {
        let mut streams = self.lock();
        let stream = match streams.entry(stream_key.to_owned()) {
            // The task is gone with its runtime.
            Entry::Occupied(mut stream) if stream.get().commands.is_closed() => {
                stream.insert(start(&self.client));
                stream.into_mut()
            }
            Entry::Occupied(stream) => stream.into_mut(),
            Entry::Vacant(place) => place.insert(start(&self.client)),
        };
        stream.watches += 1;
        // Cannot fail: the task runs while the stream has a handle.
        let _ = stream.commands.send(create);
        stream.commands.clone()
    }

    /// Removes a watch from a stream, and the stream if it was the last one.
    fn leave(&self, stream_key: &str, commands: &mpsc::UnboundedSender<Command>) {
        let mut streams = self.lock();
        let Entry::Occupied(mut stream) = streams.entry(stream_key.to_owned()) else {
            return;
        };
        if !stream.get().commands.same_channel(commands) {
            return;
        }
        stream.get_mut().watches -= 1;
        if stream.get().watches == 0 {
            stream.remove();
        }
    }
}

fn start(client: &Client) -> StreamHandle {
    let (commands, received) = mpsc::unbounded_channel();
    let is_progress_queued = Arc::new(AtomicBool::new(false));
    let task = StreamTask::new(client.clone(), received, Arc::clone(&is_progress_queued));
    tokio::spawn(task.run());
    StreamHandle {
        commands,
        watches: 0,
        is_progress_queued,
    }
}

/// A watch of a [stream](WatchStreams), as a stream of responses with events or progress notices.
/// Its last item is the reason for its end. Dropping it ends the watch.
#[derive(Debug)]
pub struct StreamWatch {
    buffer: Arc<Buffer>,
    number: WatchNumber,
    /// `None` after the end.
    commands: Option<mpsc::UnboundedSender<Command>>,
    stream_key: String,
    shared: Arc<Shared>,
}

impl StreamWatch {
    /// Waits for the next response; `None` after the end of the watch.
    pub async fn next(&mut self) -> Option<Result<WatchResponse, WatchEnd>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    fn leave(&mut self) {
        if let Some(commands) = self.commands.take() {
            // Fails only if the task is gone.
            let _ = commands.send(Command::Remove(self.number));
            self.shared.leave(&self.stream_key, &commands);
        }
    }
}

impl Stream for StreamWatch {
    type Item = Result<WatchResponse, WatchEnd>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watch = self.get_mut();
        let Some(commands) = &watch.commands else {
            return Poll::Ready(None);
        };
        match watch.buffer.poll_take(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Taken::Response { response, resume }) => {
                if resume {
                    // Fails only if the task is gone.
                    let _ = commands.send(Command::Resume(watch.number));
                }
                Poll::Ready(Some(Ok(response)))
            }
            Poll::Ready(Taken::End(end)) => {
                watch.leave();
                Poll::Ready(Some(Err(end)))
            }
        }
    }
}

impl Drop for StreamWatch {
    fn drop(&mut self) {
        self.leave();
    }
}
