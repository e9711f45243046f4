//! A watcher that resumes after every crash at the revision it had reached.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portunus_proto::etcdserverpb::watch_client::WatchClient;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use portunus_proto::mvccpb;
use portunus_proto::mvccpb::event::EventType;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::linearizability::etcd::Key;
use crate::watch_events::Event;
use crate::wire;

/// The pause between two attempts to open a stream.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The events that a watcher received since the last [`Watcher::take`].
#[derive(Debug, Default)]
struct Seen {
    events: Vec<Event>,
    /// The start revision after a broken connection.
    next_revision: i64,
    /// The first protocol violation.
    problem: Option<String>,
}

/// A running watcher.
pub(super) struct Watcher {
    /// The watched key; `None` for all keys.
    key: Option<Key>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Watches from a revision on, at the current address of the member.
    pub(super) fn spawn(
        key: Option<Key>,
        from_revision: i64,
        address: watch::Receiver<Option<SocketAddr>>,
    ) -> Watcher {
        let seen = Arc::new(Mutex::new(Seen {
            next_revision: from_revision,
            ..Seen::default()
        }));
        let task = tokio::spawn(follow(key.clone(), Arc::clone(&seen), address));
        Watcher { key, seen, task }
    }

    /// Returns those of `events` that this watcher must receive.
    pub(super) fn expected(&self, events: &[Event]) -> Vec<Event> {
        let is_mine = |event: &&Event| self.key.as_ref().is_none_or(|key| *key == event.key);
        events.iter().filter(is_mine).cloned().collect()
    }

    /// Returns the number of events received.
    pub(super) fn count(&self) -> usize {
        lock(&self.seen).events.len()
    }

    /// Returns the first protocol violation.
    pub(super) fn problem(&self) -> Option<String> {
        lock(&self.seen).problem.clone()
    }

    /// Removes and returns the received events. The watcher resumes after `revision`.
    pub(super) fn take(&self, revision: i64) -> Vec<Event> {
        let mut seen = lock(&self.seen);
        seen.next_revision = seen.next_revision.max(revision + 1);
        std::mem::take(&mut seen.events)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(
    key: Option<Key>,
    seen: Arc<Mutex<Seen>>,
    address: watch::Receiver<Option<SocketAddr>>,
) {
    loop {
        let member = *address.borrow();
        if let Some(member) = member {
            // Any end of a stream counts as a broken connection; the next stream resumes.
            let _ = one_stream(key.as_ref(), &seen, member).await;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn one_stream(
    key: Option<&Key>,
    seen: &Mutex<Seen>,
    address: SocketAddr,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    let all_keys = || vec![0];
    let create = WatchCreateRequest {
        key: key
            .map_or_else(all_keys, |key| key.as_bytes().to_vec())
            .into(),
        range_end: key.map_or_else(all_keys, |_| Vec::new()).into(),
        start_revision: lock(seen).next_revision,
        prev_kv: true,
        ..WatchCreateRequest::default()
    };
    // The sender is kept open, because the server may end a stream whose requests ended.
    let (requests, receiver) = mpsc::channel(1);
    let request_union = Some(RequestUnion::CreateRequest(create));
    requests.send(WatchRequest { request_union }).await?;
    let mut watch = WatchClient::new(channel);
    let mut responses = watch
        .watch(ReceiverStream::new(receiver))
        .await?
        .into_inner();
    while let Some(response) = responses.message().await? {
        let mut seen = lock(seen);
        if let Some(problem) = problem_with(&response, seen.next_revision) {
            seen.problem.get_or_insert(problem);
        }
        if let Some(last) = response.events.last().and_then(|event| event.kv.as_ref()) {
            seen.next_revision = last.mod_revision + 1;
        }
        seen.events.extend(response.events.iter().map(event));
    }
    Ok(())
}

/// Checks that a watch is not cancelled and that no revision is delivered twice.
fn problem_with(response: &WatchResponse, next_revision: i64) -> Option<String> {
    if response.canceled {
        return Some(format!(
            "a watch from revision {next_revision} was cancelled: {:?}, compacted {}",
            response.cancel_reason, response.compact_revision
        ));
    }
    let first = response.events.first()?.kv.as_ref()?.mod_revision;
    (first < next_revision)
        .then(|| format!("revision {first} received after {}", next_revision - 1))
}

fn event(event: &mvccpb::Event) -> Event {
    let kv = event.kv.clone().unwrap_or_default();
    let is_put = event.r#type() == EventType::Put;
    Event {
        revision: kv.mod_revision,
        key: wire::key(&kv.key),
        now: is_put.then(|| wire::entry(&kv)),
        before: event.prev_kv.as_ref().map(wire::entry),
    }
}
