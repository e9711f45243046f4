//! Fan-out: one put, many watches.
//!
//! The writer puts, waits until every watch has the event, and puts again. So no backlog
//! builds up, and the latency of an event is that of delivering it, not of queueing behind
//! earlier ones. One stream per connection carries its share of the watches, as Go clients
//! do it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::watch_client::WatchClient;
use portunus_proto::etcdserverpb::{
    PutRequest, WatchCreateRequest, WatchRequest, WatchResponse,
    watch_request::RequestUnion as WatchOp,
};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::{Scale, WorkloadError};
use crate::client::{Connections, VALUE_BYTES, key};
use crate::server::Server;
use crate::window::{Seen, Spent, Window, micros};

const PREFIX: &[u8] = b"/registry/bench/";
/// The first key behind all keys with the prefix.
const PREFIX_END: &[u8] = b"/registry/bench0";

/// An event that has not come by then is lost.
const EVENT_TIME_MAX: Duration = Duration::from_secs(20);

pub(super) async fn run(
    server: &Server,
    connections: &Connections,
    scale: &Scale,
) -> Result<(Seen, Spent), WorkloadError> {
    let streams = connections.count();
    let fan_out = Arc::new(FanOut::default());
    let mut readers = JoinSet::new();
    let mut seen_by_stream = Vec::with_capacity(streams);
    // Kept, because a stream whose requests end is closed.
    let mut requests = Vec::with_capacity(streams);
    for stream in 0..streams {
        let watches = scale.watches / streams + usize::from(stream < scale.watches % streams);
        let (sender, events) = open_watches(connections.of_client(stream), watches).await?;
        requests.push(sender);
        let seen = Arc::new(Mutex::new(Seen::default()));
        seen_by_stream.push(Arc::clone(&seen));
        readers.spawn(read_events(events, Arc::clone(&fan_out), seen));
    }
    let kv = KvClient::new(connections.of_client(0));
    let writing = write(kv, scale.watches as u64, &fan_out);
    let passing = fan_out.window.pass(scale.pace, server.process_id());
    let (written, spent) = tokio::join!(writing, passing);
    written?;
    readers.shutdown().await;
    let mut all = Seen::default();
    for seen in seen_by_stream {
        all.merge(std::mem::take(&mut *lock(&seen)));
    }
    Ok((all, spent?))
}

/// What the writer and the readers share.
struct FanOut {
    /// Where the clock in values starts.
    started: Instant,
    window: Window,
    /// Events that all watches together have received.
    delivered: AtomicU64,
    /// The count that the writer waits for.
    awaited: AtomicU64,
    /// Told when that count is reached.
    all_here: Notify,
}

impl Default for FanOut {
    fn default() -> FanOut {
        FanOut {
            started: Instant::now(),
            window: Window::default(),
            delivered: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            all_here: Notify::new(),
        }
    }
}

type Watching = (mpsc::Sender<WatchRequest>, Streaming<WatchResponse>);

/// Opens a stream with so many watches, and waits until each of them is there.
async fn open_watches(channel: Channel, watches: usize) -> Result<Watching, Status> {
    let create = WatchRequest {
        request_union: Some(WatchOp::CreateRequest(WatchCreateRequest {
            key: Bytes::from_static(PREFIX),
            range_end: Bytes::from_static(PREFIX_END),
            ..WatchCreateRequest::default()
        })),
    };
    let (sender, receiver) = mpsc::channel(watches.max(1));
    for _ in 0..watches {
        let queued = sender.try_send(create.clone());
        queued.map_err(|_| Status::internal("the queue of watches is too short"))?;
    }
    let requests = ReceiverStream::new(receiver);
    let mut events = WatchClient::new(channel)
        .watch(requests)
        .await?
        .into_inner();
    let mut created = 0;
    while created < watches {
        match events.message().await? {
            Some(response) if response.created && !response.canceled => created += 1,
            Some(response) => return Err(Status::aborted(response.cancel_reason)),
            None => return Err(Status::unavailable("the watch stream ended")),
        }
    }
    Ok((sender, events))
}

/// Puts until the window is over, each time when the last put has reached every watch.
async fn write(
    mut kv: KvClient<Channel>,
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
        kv.put(put).await?;
        let all_here = async {
            while fan_out.delivered.load(Ordering::SeqCst) < expected {
                fan_out.all_here.notified().await;
            }
        };
        if tokio::time::timeout(EVENT_TIME_MAX, all_here)
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
    mut events: Streaming<WatchResponse>,
    fan_out: Arc<FanOut>,
    seen: Arc<Mutex<Seen>>,
) {
    loop {
        let response = match events.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return,
            Err(status) => return lock(&seen).failed(&status),
        };
        let now = fan_out.started.elapsed();
        let count = response.events.len() as u64;
        if fan_out.window.is_measuring() {
            let stamps = response.events.iter().filter_map(|event| event.kv.as_ref());
            let latencies = stamps.filter_map(|kv| time_in(&kv.value));
            let latencies = latencies.map(|sent| micros(now.saturating_sub(sent)));
            lock(&seen).latencies_us.extend(latencies);
        }
        let delivered = fan_out.delivered.fetch_add(count, Ordering::SeqCst) + count;
        if delivered >= fan_out.awaited.load(Ordering::SeqCst) {
            fan_out.all_here.notify_one();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value of the usual length that says when it was sent.
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
    fn a_value_says_when_it_was_sent() {
        let sent = Duration::from_nanos(1_234_567_890_123);
        let value = time_stamp(sent);
        assert_eq!(value.len(), VALUE_BYTES);
        assert_eq!(time_in(&value), Some(sent));
        assert_eq!(time_in(b"short"), None);
    }

    #[test]
    fn the_watched_range_holds_every_key_and_ends_right_behind() {
        assert!(key(0).starts_with(PREFIX));
        assert!(PREFIX_END > &key(99_999_999)[..]);
        assert_eq!(PREFIX_END.len(), PREFIX.len());
    }
}
