//! An implementation of the interface that records another one.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use serde_json::{Value, json};

use super::json::{Answer, of_bytes, of_error};
use crate::kubernetes::{
    CountOptions, DeleteOptions, DeleteResponse, Error, GetOptions, GetResponse, Interface,
    ListOptions, ListResponse, PutOptions, PutResponse, RequestProgressOptions, WatchEvent,
    WatchEvents, WatchOptions,
};

/// Calls of the interface as JSON, the same for recording and replaying.
pub(super) mod calls {
    use super::*;

    pub(in super::super) fn get(key: &[u8], options: &GetOptions) -> Value {
        json!({ "call": "get", "key": of_bytes(key), "revision": options.revision })
    }

    pub(in super::super) fn list(prefix: &[u8], options: &ListOptions) -> Value {
        json!({
            "call": "list", "prefix": of_bytes(prefix), "revision": options.revision,
            "limit": options.limit, "continue_key": of_bytes(&options.continue_key),
        })
    }

    pub(in super::super) fn count(prefix: &[u8], _options: &CountOptions) -> Value {
        json!({ "call": "count", "prefix": of_bytes(prefix) })
    }

    pub(in super::super) fn put(
        key: &[u8],
        value: &[u8],
        expected_revision: i64,
        options: &PutOptions,
    ) -> Value {
        json!({
            "call": "optimistic_put", "key": of_bytes(key), "value": of_bytes(value),
            "expected_revision": expected_revision,
            "get_on_failure": options.get_on_failure, "lease": options.lease_id,
        })
    }

    pub(in super::super) fn delete(
        key: &[u8],
        expected_revision: i64,
        options: &DeleteOptions,
    ) -> Value {
        json!({
            "call": "optimistic_delete", "key": of_bytes(key),
            "expected_revision": expected_revision, "get_on_failure": options.get_on_failure,
        })
    }

    pub(in super::super) fn watch(key: &[u8], options: &WatchOptions) -> Value {
        json!({
            "call": "watch", "key": of_bytes(key), "stream_key": options.stream_key,
            "revision": options.revision, "prefix": options.prefix,
        })
    }

    pub(in super::super) fn progress(options: &RequestProgressOptions) -> Value {
        json!({ "call": "request_progress", "stream_key": options.stream_key })
    }
}

/// Passes calls to an implementation and writes them with their answers.
#[derive(Debug)]
pub struct Recorder<I, W> {
    store: I,
    lines: Arc<Lines<W>>,
    watches: AtomicU64,
}

#[derive(Debug)]
struct Lines<W> {
    output: Mutex<Output<W>>,
}

#[derive(Debug)]
struct Output<W> {
    /// `None` after the end of the recording.
    writer: Option<W>,
    /// The first error of the writer.
    error: Option<io::Error>,
}

impl<W: io::Write> Lines<W> {
    fn lock(&self) -> MutexGuard<'_, Output<W>> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line. After an error nothing more is written.
    fn write(&self, line: &Value) {
        let mut output = self.lock();
        if output.error.is_none()
            && let Some(writer) = &mut output.writer
            && let Err(error) = writeln!(writer, "{line}")
        {
            output.error = Some(error);
        }
    }
}

impl<I: Interface, W: io::Write + Send> Recorder<I, W> {
    /// Records the calls of a store to a writer.
    pub fn new(store: I, writer: W) -> Self {
        let output = Output {
            writer: Some(writer),
            error: None,
        };
        Self {
            store,
            lines: Arc::new(Lines {
                output: Mutex::new(output),
            }),
            watches: AtomicU64::new(0),
        }
    }

    /// Ends the recording and returns the writer. Watches go on without being recorded.
    ///
    /// # Errors
    /// The first error of the writer; the recording is incomplete then.
    pub fn finish(self) -> io::Result<W> {
        let mut output = self.lines.lock();
        if let Some(error) = output.error.take() {
            return Err(error);
        }
        let writer = output.writer.take();
        let mut writer = writer.ok_or_else(|| io::Error::other("the recording has ended"))?;
        writer.flush()?;
        Ok(writer)
    }

    fn record<T: Answer>(&self, call: Value, answer: Result<T, Error>) -> Result<T, Error> {
        let line = match &answer {
            Ok(answer) => json!({ "call": call, "answer": answer.to_json() }),
            Err(error) => json!({ "call": call, "error": of_error(error) }),
        };
        self.lines.write(&line);
        answer
    }
}

#[async_trait]
impl<I: Interface, W: io::Write + Send + 'static> Interface for Recorder<I, W> {
    async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error> {
        let call = calls::get(key, &options);
        self.record(call, self.store.get(key, options).await)
    }

    async fn list(&self, prefix: &[u8], options: ListOptions) -> Result<ListResponse, Error> {
        let call = calls::list(prefix, &options);
        self.record(call, self.store.list(prefix, options).await)
    }

    async fn count(&self, prefix: &[u8], options: CountOptions) -> Result<i64, Error> {
        let call = calls::count(prefix, &options);
        self.record(call, self.store.count(prefix, options).await)
    }

    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        expected_revision: i64,
        options: PutOptions,
    ) -> Result<PutResponse, Error> {
        let call = calls::put(key, &value, expected_revision, &options);
        let put = self
            .store
            .optimistic_put(key, value, expected_revision, options);
        self.record(call, put.await)
    }

    async fn optimistic_delete(
        &self,
        key: &[u8],
        expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error> {
        let call = calls::delete(key, expected_revision, &options);
        let delete = self
            .store
            .optimistic_delete(key, expected_revision, options);
        self.record(call, delete.await)
    }

    async fn watch(&self, key: &[u8], options: WatchOptions) -> Result<WatchEvents, Error> {
        let call = calls::watch(key, &options);
        let events = match self.store.watch(key, options).await {
            Ok(events) => events,
            Err(error) => {
                let line = json!({ "call": call, "error": of_error(&error) });
                self.lines.write(&line);
                return Err(error);
            }
        };
        let watch = self.watches.fetch_add(1, Ordering::Relaxed);
        self.lines.write(&json!({ "call": call, "watch": watch }));
        Ok(WatchEvents::new(RecordedEvents {
            events,
            watch,
            lines: Arc::clone(&self.lines),
        }))
    }

    async fn request_progress(&self, options: RequestProgressOptions) -> Result<(), Error> {
        let call = calls::progress(&options);
        self.record(call, self.store.request_progress(options).await)
    }
}

struct RecordedEvents<W> {
    events: WatchEvents,
    watch: u64,
    lines: Arc<Lines<W>>,
}

impl<W: io::Write> Stream for RecordedEvents<W> {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let polled = Pin::new(&mut self.events).poll_next(context);
        if let Poll::Ready(Some(event)) = &polled {
            let line = json!({ "watch": self.watch, "event": event.to_json() });
            self.lines.write(&line);
        }
        polled
    }
}
