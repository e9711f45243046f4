//! A simple model of the store, and watch clients.

#![allow(
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portunus_mvcc::watch::{
    ConnectionId, Event, History, HistoryError, Hub, Limits, ResponseReceiver, RevisionEvents,
    StreamId, StreamOptions, SyncBudget, Wake,
};
use portunus_proto::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
use portunus_proto::mvccpb::event::EventType;
use portunus_proto::mvccpb::{self, KeyValue};

/// One operation of a transaction.
#[derive(Debug, Clone)]
pub enum Op {
    Put(String, String),
    Delete(String),
}

/// Every revision as a list of events with their previous versions.
#[derive(Default)]
pub struct ModelStore {
    /// `revisions[i]` is revision `i + 2`: an empty store is at revision 1.
    pub revisions: Vec<Vec<mvccpb::Event>>,
    pub compact: i64,
    /// If set, history answers as if newer revisions did not exist.
    pub visible: Option<i64>,
    pub prev_lookups: Cell<usize>,
    pub reads: Cell<usize>,
}

impl ModelStore {
    pub fn revision_now(&self) -> i64 {
        self.revisions.len() as i64 + 1
    }

    pub fn put(&mut self, key: &str, value: &str) -> Arc<RevisionEvents> {
        self.txn(&[Op::Put(key.into(), value.into())])
    }

    pub fn delete(&mut self, key: &str) -> Arc<RevisionEvents> {
        self.txn(&[Op::Delete(key.into())])
    }

    /// Applies all operations as one revision. Deletes of absent keys do nothing.
    pub fn txn(&mut self, ops: &[Op]) -> Arc<RevisionEvents> {
        let revision = self.revision_now() + 1;
        let mut events = Vec::new();
        for op in ops {
            match op {
                Op::Put(key, value) => {
                    let prev = self.version_at(key.as_bytes(), revision - 1);
                    let kv = KeyValue {
                        key: Bytes::from(key.clone()),
                        value: Bytes::from(value.clone()),
                        create_revision: prev.as_ref().map_or(revision, |p| p.create_revision),
                        mod_revision: revision,
                        version: prev.as_ref().map_or(1, |p| p.version + 1),
                        lease: 0,
                    };
                    events.push(mvccpb::Event {
                        r#type: EventType::Put.into(),
                        kv: Some(kv),
                        prev_kv: prev,
                    });
                }
                Op::Delete(key) => {
                    let Some(prev) = self.version_at(key.as_bytes(), revision - 1) else {
                        continue;
                    };
                    let kv = KeyValue {
                        key: Bytes::from(key.clone()),
                        mod_revision: revision,
                        ..KeyValue::default()
                    };
                    events.push(mvccpb::Event {
                        r#type: EventType::Delete.into(),
                        kv: Some(kv),
                        prev_kv: Some(prev),
                    });
                }
            }
        }
        assert!(
            !events.is_empty(),
            "a transaction without effect makes no revision"
        );
        let published = events.iter().map(live_event).collect();
        self.revisions.push(events);
        Arc::new(RevisionEvents {
            revision,
            events: published,
        })
    }

    pub fn exists(&self, key: &str) -> bool {
        self.version_at(key.as_bytes(), self.revision_now())
            .is_some()
    }

    pub fn events_at(&self, revision: i64) -> &[mvccpb::Event] {
        &self.revisions[usize::try_from(revision - 2).unwrap()]
    }

    /// The live version of a key at a revision, ignoring compaction.
    pub fn version_at(&self, key: &[u8], revision: i64) -> Option<KeyValue> {
        let visible = usize::try_from(revision - 1)
            .unwrap_or(0)
            .min(self.revisions.len());
        for events in self.revisions[..visible].iter().rev() {
            for event in events {
                let kv = event.kv.as_ref().unwrap();
                if kv.key == key {
                    return (event.r#type() == EventType::Put).then(|| kv.clone());
                }
            }
        }
        None
    }
}

fn live_event(event: &mvccpb::Event) -> Event {
    let kv = event.kv.clone().unwrap();
    match event.r#type() {
        EventType::Put => Event::put(kv, event.prev_kv.clone()),
        EventType::Delete => Event::delete(kv.key, kv.mod_revision, event.prev_kv.clone()),
    }
}

/// Events as read from disk: without previous versions.
pub fn stored_event(event: &mvccpb::Event) -> Event {
    let kv = event.kv.clone().unwrap();
    match event.r#type() {
        EventType::Put => Event::put_without_prev(kv),
        EventType::Delete => Event::delete_without_prev(kv.key, kv.mod_revision),
    }
}

impl History for ModelStore {
    fn revision(&self) -> i64 {
        self.visible.unwrap_or(self.revision_now())
    }

    fn compact_revision(&self) -> i64 {
        self.compact
    }

    fn events_since(
        &self,
        from: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, HistoryError> {
        self.reads.set(self.reads.get() + 1);
        if from < self.compact {
            return Err(HistoryError::Compacted {
                compact_revision: self.compact,
            });
        }
        let revisions = from.max(2)..=self.revision();
        Ok(revisions
            .take(revisions_max)
            .map(|revision| {
                let events = self.events_at(revision).iter().map(stored_event).collect();
                Arc::new(RevisionEvents { revision, events })
            })
            .collect())
    }

    fn prev_kv(&self, key: &[u8], mod_revision: i64) -> Result<Option<KeyValue>, HistoryError> {
        self.prev_lookups.set(self.prev_lookups.get() + 1);
        if mod_revision - 1 < self.compact {
            return Ok(None);
        }
        Ok(self.version_at(key, mod_revision - 1))
    }
}

#[derive(Default)]
pub struct CountingWake {
    pub readable: AtomicUsize,
    pub drained: AtomicUsize,
}

impl Wake for CountingWake {
    fn readable(&self) {
        self.readable.fetch_add(1, Ordering::Relaxed);
    }

    fn drained(&self) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }
}

pub struct Client {
    pub stream: StreamId,
    pub receiver: ResponseReceiver,
    pub wake: Arc<CountingWake>,
}

pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

impl Client {
    pub fn open(hub: &mut Hub) -> Self {
        Self::open_on(hub, None)
    }

    /// Opens a stream of a connection.
    pub fn open_on(hub: &mut Hub, connection: Option<ConnectionId>) -> Self {
        let wake = Arc::new(CountingWake::default());
        let options = StreamOptions {
            now: Duration::ZERO,
            progress_interval: PROGRESS_INTERVAL,
            connection,
        };
        let (stream, receiver) = hub.open_stream(options, Arc::clone(&wake) as Arc<dyn Wake>);
        Self {
            stream,
            receiver,
            wake,
        }
    }

    pub fn next(&mut self) -> Option<WatchResponse> {
        let header = ResponseHeader {
            cluster_id: 7,
            member_id: 8,
            revision: -9,
            raft_term: 3,
        };
        let response = self.receiver.take()?.to_message(&header).unwrap();
        let sent = response.header.as_ref().unwrap();
        assert_eq!((sent.cluster_id, sent.member_id, sent.raft_term), (7, 8, 3));
        Some(response)
    }

    pub fn drain(&mut self) -> Vec<WatchResponse> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Creates a watch and reads its created answer, which must come first.
    pub fn watch(&mut self, hub: &mut Hub, request: WatchCreateRequest) -> i64 {
        let id = hub.create(self.stream, request).unwrap().expect("refused");
        let answer = self.next().unwrap();
        assert!(answer.created && !answer.canceled && answer.watch_id == id);
        id
    }
}

pub fn on_key(key: &str) -> WatchCreateRequest {
    WatchCreateRequest {
        key: Bytes::from(key.to_owned()),
        ..WatchCreateRequest::default()
    }
}

pub fn on_range(key: &str, range_end: &str) -> WatchCreateRequest {
    WatchCreateRequest {
        range_end: Bytes::from(range_end.to_owned()),
        ..on_key(key)
    }
}

pub fn from(start_revision: i64, request: WatchCreateRequest) -> WatchCreateRequest {
    WatchCreateRequest {
        start_revision,
        ..request
    }
}

pub fn new_hub() -> Hub {
    Hub::new(1, Limits::default())
}

/// Runs sync steps until no watch is runnable.
pub fn sync_all(hub: &mut Hub, store: &ModelStore) {
    for _ in 0..10_000 {
        if hub.sync_step(store, SyncBudget::default()).runnable == 0 {
            return;
        }
    }
    panic!("watches do not get in step");
}

/// `put k@5` or `delete k@5` for each event of the response.
pub fn event_texts(response: &WatchResponse) -> Vec<String> {
    let text = |event: &mvccpb::Event| {
        let kv = event.kv.as_ref().unwrap();
        let kind = if event.r#type() == EventType::Put {
            "put"
        } else {
            "delete"
        };
        format!(
            "{kind} {}@{}",
            String::from_utf8_lossy(&kv.key),
            kv.mod_revision
        )
    };
    response.events.iter().map(text).collect()
}

pub fn event_texts_all(responses: &[WatchResponse]) -> Vec<String> {
    responses.iter().flat_map(event_texts).collect()
}
