//! A store that breaks one rule of the contract.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use portunus_client::kubernetes::contract::{Control, ControlError};
use portunus_client::kubernetes::{
    CountOptions, DeleteOptions, DeleteResponse, Error, GetOptions, GetResponse, Interface,
    KeyValue, ListOptions, ListResponse, Memory, PutOptions, PutResponse, RequestProgressOptions,
    WatchEvent, WatchEvents, WatchOptions, Write,
};

/// An in-memory store that breaks the rule with an id.
pub struct Broken {
    memory: Memory,
    rule: &'static str,
    /// A lease that is never revoked, for keys whose own lease is ignored.
    lease: i64,
}

impl Broken {
    pub fn new(rule: &'static str) -> Self {
        let memory = Memory::new();
        let lease = memory.grant_lease(Duration::MAX);
        Self {
            memory,
            rule,
            lease,
        }
    }

    fn breaks(&self, rule: &str) -> bool {
        self.rule == rule
    }

    async fn mod_revision(&self, key: &[u8]) -> i64 {
        let read = self.memory.get(key, GetOptions::default()).await.unwrap();
        read.kv.map_or(0, |kv| kv.mod_revision)
    }
}

#[async_trait]
impl Interface for Broken {
    async fn get(&self, key: &[u8], mut options: GetOptions) -> Result<GetResponse, Error> {
        if self.breaks("arguments-are-checked") {
            options.revision = options.revision.max(0);
        }
        if self.breaks("get-reads-history") {
            options.revision = 0;
        }
        let is_future = options.revision > self.memory.revision();
        if is_future && self.breaks("get-refuses-future-revision") {
            options.revision = 0;
        }
        let is_compacted = options.revision < self.memory.compact_revision();
        if is_compacted && self.breaks("get-refuses-compacted-revision") {
            options.revision = 0;
        }
        let mut read = self.memory.get(key, options).await?;
        if self.breaks("get-is-linearizable") {
            read.revision -= 1;
        }
        if read.kv.is_none() && self.breaks("get-returns-pair-or-nothing") {
            read.kv = Some(KeyValue::default());
        }
        if let Some(kv) = &mut read.kv {
            if self.breaks("values-are-opaque") {
                let text = String::from_utf8_lossy(&kv.value).into_owned();
                kv.value = text.into();
            }
            if self.breaks("recreated-key-is-new") {
                kv.version += 1;
            }
        }
        Ok(read)
    }

    async fn list(&self, prefix: &[u8], mut options: ListOptions) -> Result<ListResponse, Error> {
        if self.breaks("list-continues-at-key") && !options.continue_key.is_empty() {
            options.continue_key = [&options.continue_key[..], b"\0"].concat().into();
        }
        if self.breaks("list-pages-are-one-snapshot") {
            options.revision = 0;
        }
        let is_compacted = options.revision < self.memory.compact_revision();
        if is_compacted && self.breaks("list-fails-after-compaction") {
            options.revision = 0;
        }
        let limit = options.limit;
        let is_historic = options.revision > 0;
        let mut list = self.memory.list(prefix, options).await?;
        if self.breaks("list-is-ordered-and-bounded") {
            list.kvs.reverse();
        }
        if self.breaks("list-counts-past-its-limit") {
            list.count = i64::try_from(list.kvs.len()).unwrap();
        }
        if limit > 8 && self.breaks("list-pages-may-grow") {
            // A page that is shorter than its limit, with a count as if it were the last.
            list.kvs.truncate(8);
            list.count = list.count.min(8);
        }
        if limit > 5000 && self.breaks("list-fills-largest-page") {
            // A store with a smaller limit of its own; the count is right.
            list.kvs.truncate(5000);
        }
        if is_historic && self.breaks("list-equals-watch-cache") {
            list.kvs.pop();
        }
        Ok(list)
    }

    async fn count(&self, prefix: &[u8], options: CountOptions) -> Result<i64, Error> {
        let count = self.memory.count(prefix, options).await?;
        match self.breaks("count-equals-list") {
            // Deleted keys are counted.
            true if self.memory.revision() > 3 => Ok(count + 1),
            _ => Ok(count),
        }
    }

    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        mut expected_revision: i64,
        mut options: PutOptions,
    ) -> Result<PutResponse, Error> {
        let current = self.mod_revision(key).await;
        if expected_revision == 0 && self.breaks("create-succeeds-once") {
            expected_revision = current;
        }
        if expected_revision > current && self.breaks("update-compares-revision") {
            expected_revision = current;
        }
        if self.breaks("mismatch-returns-current-pair") {
            options.get_on_failure = true;
        }
        let is_leased = options.lease_id != 0 && !key.starts_with(b"never");
        if options.lease_id == 0 && current != 0 && self.breaks("lease-is-replaced-and-cleared") {
            options.lease_id = self.lease;
        }
        let is_unknown = is_leased && self.memory.lease_keys(options.lease_id).is_err();
        let ignores_leases =
            self.breaks("lease-must-exist") || self.breaks("lease-revoked-during-put");
        if is_unknown && ignores_leases {
            options.lease_id = 0;
        }
        let put = self
            .memory
            .optimistic_put(key, value.clone(), expected_revision, options);
        let mut put = put.await?;
        if put.succeeded && self.breaks("success-returns-no-pair") {
            put.kv = self.memory.get(key, GetOptions::default()).await?.kv;
        }
        if put.succeeded && self.breaks("revision-counts-transactions") {
            put.revision += 1;
        }
        Ok(put)
    }

    async fn optimistic_delete(
        &self,
        key: &[u8],
        mut expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error> {
        let current = self.mod_revision(key).await;
        if current != 0 && self.breaks("delete-compares-revision") {
            expected_revision = current;
        }
        let delete = self
            .memory
            .optimistic_delete(key, expected_revision, options);
        let mut deleted = delete.await?;
        if current == 0 && self.breaks("delete-of-absent-key") {
            deleted.succeeded = false;
        }
        Ok(deleted)
    }

    async fn watch(&self, key: &[u8], mut options: WatchOptions) -> Result<WatchEvents, Error> {
        if self.breaks("watch-begins-after-revision") && options.revision > 0 {
            options.revision -= 1;
        }
        if self.breaks("watch-is-bounded") {
            options.prefix = true;
        }
        if self.breaks("progress-is-per-stream") {
            options.stream_key = String::new();
        }
        if options.revision > self.memory.revision()
            && self.breaks("watch-waits-for-future-revision")
        {
            options.revision = 0;
        }
        let is_compacted = (1..self.memory.compact_revision()).contains(&options.revision);
        if is_compacted && self.breaks("watch-fails-after-compaction") {
            options.revision = self.memory.revision() - 1;
        }
        if key == b"compact_rev_key" && self.breaks("compact-key-is-watchable") {
            options.revision = i64::MAX - 1;
        }
        let events = self.memory.watch(key, options).await?;
        Ok(WatchEvents::new(BrokenEvents {
            rule: self.rule,
            events,
            waiting: VecDeque::new(),
        }))
    }

    async fn request_progress(&self, mut options: RequestProgressOptions) -> Result<(), Error> {
        if self.breaks("progress-is-per-stream") {
            options.stream_key = String::new();
        }
        let requested = self.memory.request_progress(options).await;
        match requested {
            Err(_) if self.breaks("progress-needs-a-watch") => Ok(()),
            requested => requested,
        }
    }
}

#[async_trait]
impl Control for Broken {
    async fn compact(&self, revision: i64) -> Result<(), ControlError> {
        Ok(self.memory.compact(revision)?)
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<i64, ControlError> {
        Ok(self.memory.grant_lease(ttl))
    }

    async fn revoke_lease(&self, id: i64) -> Result<(), ControlError> {
        if self.breaks("lease-deletes-its-keys") {
            // One deletion after the other.
            for key in self.memory.lease_keys(id)? {
                self.memory.write(vec![Write::Delete { key }])?;
            }
        }
        Ok(self.memory.revoke_lease(id)?)
    }

    async fn write(&self, writes: Vec<Write>) -> Result<i64, ControlError> {
        if self.breaks("watch-groups-transactions") {
            let mut revision = 0;
            for write in writes {
                revision = self.memory.write(vec![write])?;
            }
            return Ok(revision);
        }
        Ok(self.memory.write(writes)?)
    }

    async fn list_keys(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, ControlError> {
        match self.breaks("list-without-values") {
            true => Ok(Vec::new()),
            false => self.memory.list_keys(prefix).await,
        }
    }

    async fn stream(&self, prefix: &[u8], revision: i64) -> Result<Vec<KeyValue>, ControlError> {
        let revision = match self.breaks("stream-equals-list") {
            true => 0,
            false => revision,
        };
        self.memory.stream(prefix, revision).await
    }
}

/// The events of a watch, some of them changed, dropped or in another order.
struct BrokenEvents {
    rule: &'static str,
    events: WatchEvents,
    waiting: VecDeque<WatchEvent>,
}

impl BrokenEvents {
    /// Appends what the watch returns for an event of the store.
    fn change(&mut self, event: WatchEvent) {
        match (self.rule, event) {
            ("watch-returns-changes", WatchEvent::Deleted { key, revision, .. }) => {
                self.waiting.push_back(WatchEvent::Deleted {
                    key,
                    previous_value: Bytes::new(),
                    revision,
                })
            }
            // Recreated keys look like changed ones.
            (
                "watch-of-recreated-key",
                WatchEvent::Added {
                    key,
                    value,
                    revision,
                },
            ) if value == "2" => self.waiting.push_back(WatchEvent::Modified {
                key,
                value,
                previous_value: Bytes::new(),
                revision,
            }),
            (
                "watch-keeps-previous-values",
                WatchEvent::Modified {
                    key,
                    value,
                    revision,
                    ..
                },
            ) => self.waiting.push_back(WatchEvent::Modified {
                key,
                value,
                previous_value: Bytes::new(),
                revision,
            }),
            ("watch-is-ordered-and-complete", event) if event.revision() == Some(20) => {}
            ("bookmark-of-fresh-watch", WatchEvent::Bookmark { .. }) => {
                self.waiting.push_back(WatchEvent::Bookmark { revision: 0 });
            }
            ("bookmark-follows-events", WatchEvent::Bookmark { revision }) => {
                let revision = revision + 1;
                self.waiting.push_back(WatchEvent::Bookmark { revision });
            }
            // A bookmark after each event.
            ("bookmark-does-not-split-transactions", event) => {
                let revision = event.revision().unwrap();
                self.waiting.push_back(event);
                self.waiting.push_back(WatchEvent::Bookmark { revision });
            }
            (_, event) => self.waiting.push_back(event),
        }
    }
}

impl Stream for BrokenEvents {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Poll::Ready(Some(event));
            }
            match Pin::new(&mut self.events).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(event)) => self.change(event),
            }
        }
    }
}
