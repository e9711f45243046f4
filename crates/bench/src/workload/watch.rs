//! Fan-out: one put, many watches.
//!
//! The writer puts, waits until every watch has received the event, and puts again. So there
//! is no backlog, and the latency of an event does not include queueing after earlier ones.
//! Each connection has one stream with its share of the watches, as in Go clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use portunus_proto::etcdserverpb::{
    PutRequest, WatchCreateRequest, WatchRequest, watch_request::RequestUnion as WatchOp,
};
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{Load, LoadOutcome, WorkloadError};
use crate::answer::{Fields, field};
use crate::client::{PREFIX, PREFIX_END, VALUE_BYTES, key};
use crate::window::{ClientResults, Window, micros};
use crate::wire::{Connection, Event, Method, StreamId};

/// The time limit for an event.
const EVENT_TIME_MAX: Duration = Duration::from_secs(20);

pub(super) async fn run(load: &Load<'_>) -> Result<LoadOutcome, WorkloadError> {
    let connections = load.connect().await?;
    let (streams, watches) = (connections.len(), load.clients);
    let fan_out = Arc::new(FanOut::default());
    let mut readers = JoinSet::new();
    let mut seen_by_stream = Vec::with_capacity(streams);
    for (stream, connection) in connections.into_iter().enumerate() {
        let share = watches / streams + usize::from(stream < watches % streams);
        let watcher = Watcher::open(connection, share).await?;
        let results = Arc::new(Mutex::new(ClientResults::default()));
        seen_by_stream.push(Arc::clone(&results));
        readers.spawn(read_events(watcher, Arc::clone(&fan_out), results));
    }
    let writer = Connection::open(&load.endpoint).await?;
    let writing = write(writer, watches as u64, &fan_out);
    let passing = fan_out.window.run(load.scale.durations, &load.process_ids);
    let (written, usage_in_window) = tokio::join!(writing, passing);
    written?;
    readers.shutdown().await;
    let mut all = ClientResults::default();
    for results in seen_by_stream {
        all.merge(std::mem::take(&mut *lock(&results)));
    }
    Ok((all, usage_in_window?))
}

/// A stream with watches on every key.
pub(super) struct Watcher {
    connection: Connection,
    stream: StreamId,
}

impl Watcher {
    /// Opens the watches and waits until all are created.
    pub(super) async fn open(
        mut connection: Connection,
        watches: usize,
    ) -> Result<Watcher, WorkloadError> {
        let create = WatchRequest {
            request_union: Some(WatchOp::CreateRequest(WatchCreateRequest {
                key: Bytes::from_static(PREFIX),
                range_end: Bytes::from_static(PREFIX_END),
                ..WatchCreateRequest::default()
            })),
        };
        let create = create.encode_to_vec();
        let stream = connection.start(Method::Watch);
        for _ in 0..watches {
            connection.send(stream, &create);
        }
        let mut created = 0;
        while created < watches {
            connection.flush().await?;
            connection.receive().await?;
            while let Some(event) = connection.next_event() {
                let Event::Message(_, answer) = event else {
                    return Err(WorkloadError::WatchRefused);
                };
                let answer = Fields::of(&answer);
                let is_created = answer.number(field::WATCH_CREATED) != 0;
                if !is_created || answer.number(field::WATCH_CANCELED) != 0 {
                    return Err(WorkloadError::WatchRefused);
                }
                created += 1;
            }
        }
        Ok(Watcher { connection, stream })
    }

    /// Reads until the stream ends, which is an error. Calls `see` for each answer with the
    /// number of its events and the value of the first.
    pub(super) async fn read(
        &mut self,
        mut see: impl FnMut(u64, Option<&[u8]>),
    ) -> Result<(), crate::wire::WireError> {
        loop {
            // Answers to pings and window updates.
            self.connection.flush().await?;
            self.connection.receive().await?;
            while let Some(event) = self.connection.next_event() {
                match event {
                    Event::Message(_, answer) => {
                        let answer = Fields::of(&answer);
                        let first = answer.message(field::WATCH_EVENTS);
                        let value = first.message(field::EVENT_KV).all(field::KV_VALUE).next();
                        see(answer.all(field::WATCH_EVENTS).count() as u64, value);
                    }
                    Event::End(stream) if stream == self.stream => {
                        return Err(crate::wire::WireError::Closed);
                    }
                    Event::End(_) => {}
                }
            }
        }
    }
}

/// State shared by the writer and the readers.
struct FanOut {
    /// The origin of the times in values.
    started: Instant,
    window: Window,
    /// Events received by all watches together.
    delivered: AtomicU64,
    /// The number of events that the writer waits for.
    awaited: AtomicU64,
    /// Notified when that number is reached.
    all_delivered: Notify,
}

impl Default for FanOut {
    fn default() -> FanOut {
        FanOut {
            started: Instant::now(),
            window: Window::default(),
            delivered: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            all_delivered: Notify::new(),
        }
    }
}

/// Puts until the window is over; each put waits until every watch has the previous one.
async fn write(
    mut connection: Connection,
    watches: u64,
    fan_out: &FanOut,
) -> Result<(), WorkloadError> {
    let mut expected = 0;
    while !fan_out.window.is_over() {
        expected += watches;
        fan_out.awaited.store(expected, Ordering::SeqCst);
        let put = PutRequest {
            key: key(0),
            value: time_stamp(fan_out.started.elapsed()),
            ..PutRequest::default()
        };
        let answer = connection.call(Method::Put, &put.encode_to_vec()).await?;
        if answer.is_none() {
            return Err(WorkloadError::PutRefused);
        }
        let all_delivered = async {
            while fan_out.delivered.load(Ordering::SeqCst) < expected {
                fan_out.all_delivered.notified().await;
            }
        };
        if tokio::time::timeout(EVENT_TIME_MAX, all_delivered)
            .await
            .is_err()
        {
            let delivered = fan_out.delivered.load(Ordering::SeqCst);
            return Err(WorkloadError::EventsMissing {
                missing: expected.saturating_sub(delivered),
                expected: watches,
                seconds: EVENT_TIME_MAX.as_secs(),
            });
        }
    }
    Ok(())
}

async fn read_events(
    mut watcher: Watcher,
    fan_out: Arc<FanOut>,
    results: Arc<Mutex<ClientResults>>,
) {
    let see = |count: u64, first_value: Option<&[u8]>| {
        if fan_out.window.is_measuring()
            && let Some(sent) = first_value.and_then(time_in)
        {
            let latency = micros(fan_out.started.elapsed().saturating_sub(sent));
            let latencies = std::iter::repeat_n(latency, usize::try_from(count).unwrap_or(1));
            lock(&results).latencies_us.extend(latencies);
        }
        let delivered = fan_out.delivered.fetch_add(count, Ordering::SeqCst) + count;
        if delivered >= fan_out.awaited.load(Ordering::SeqCst) {
            fan_out.all_delivered.notify_one();
        }
    };
    if let Err(error) = watcher.read(see).await {
        lock(&results).failed(error);
    }
}

fn lock(results: &Mutex<ClientResults>) -> MutexGuard<'_, ClientResults> {
    results.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a value that contains its send time.
fn time_stamp(sent: Duration) -> Bytes {
    let mut value = BytesMut::zeroed(VALUE_BYTES);
    let nanoseconds = u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX);
    value[..8].copy_from_slice(&nanoseconds.to_be_bytes());
    value.freeze()
}

fn time_in(value: &[u8]) -> Option<Duration> {
    let stamp = value.first_chunk::<8>()?;
    Some(Duration::from_nanos(u64::from_be_bytes(*stamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_time_is_read_from_the_value() {
        let sent = Duration::from_nanos(1_234_567_890_123);
        let value = time_stamp(sent);
        assert_eq!(value.len(), VALUE_BYTES);
        assert_eq!(time_in(&value), Some(sent));
        assert_eq!(time_in(b"short"), None);
    }
}
