//! What a check of a rule works with: the store, its controls, and a scratch prefix of its own.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use super::control::{Control, ControlError};
use crate::kubernetes::{
    DeleteOptions, Error, GetOptions, GetResponse, Interface, KeyValue, ListOptions, ListResponse,
    PutOptions, RequestProgressOptions, WatchEvent, WatchEvents, WatchOptions, Write,
};

/// The pause between two progress requests, as kube-apiserver's.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Why a check ended early.
#[derive(Debug)]
pub(super) enum Violation {
    /// The store breaks the rule.
    Broken(String),
    /// The rule cannot be checked.
    Skipped(String),
}

impl From<Error> for Violation {
    fn from(error: Error) -> Self {
        Self::Broken(format!("an operation failed: {error}"))
    }
}

impl From<ControlError> for Violation {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Unsupported { .. } => Self::Skipped(error.to_string()),
            ControlError::Failed(error) => error.into(),
        }
    }
}

/// The outcome of a check.
pub(super) type Checked<T = ()> = Result<T, Violation>;

/// Returns a violation unless a condition holds.
macro_rules! demand {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::kubernetes::contract::context::Violation::Broken(format!($($message)+)));
        }
    };
}
pub(super) use demand;

/// Returns a violation unless two values are equal.
macro_rules! demand_eq {
    ($actual:expr, $expected:expr, $($message:tt)+) => {
        let (actual, expected) = (&$actual, &$expected);
        if actual != expected {
            let message = format!($($message)+);
            return Err($crate::kubernetes::contract::context::Violation::Broken(format!(
                "{message}: {actual:?} instead of {expected:?}"
            )));
        }
    };
}
pub(super) use demand_eq;

/// The store under test and the scratch prefix of one rule.
pub(super) struct Context<'s> {
    pub(super) store: &'s dyn Interface,
    pub(super) control: &'s dyn Control,
    /// The prefix, which ends with a slash.
    pub(super) prefix: Bytes,
    pub(super) wait_max: Duration,
}

impl Context<'_> {
    /// Returns a key of the scratch prefix.
    pub(super) fn key(&self, name: &str) -> Bytes {
        let mut key = BytesMut::with_capacity(self.prefix.len() + name.len());
        key.put_slice(&self.prefix);
        key.put_slice(name.as_bytes());
        key.freeze()
    }

    pub(super) async fn get(&self, name: &str) -> Checked<GetResponse> {
        self.get_at(name, 0).await
    }

    pub(super) async fn get_at(&self, name: &str, revision: i64) -> Checked<GetResponse> {
        let options = GetOptions { revision };
        Ok(self.store.get(&self.key(name), options).await?)
    }

    /// Returns the pair of a key that must exist.
    pub(super) async fn existing(&self, name: &str) -> Checked<KeyValue> {
        let kv = self.get(name).await?.kv;
        kv.ok_or_else(|| Violation::Broken(format!("{name:?} does not exist after it was written")))
    }

    /// Creates a key and returns its revision.
    pub(super) async fn create(&self, name: &str, value: &str) -> Checked<i64> {
        self.update(name, value, 0).await
    }

    /// Writes a key that has the expected revision and returns the new one.
    pub(super) async fn update(&self, name: &str, value: &str, expected: i64) -> Checked<i64> {
        self.put(name, value, expected, PutOptions::default()).await
    }

    /// Writes a key that has the expected revision with a lease and returns the new one.
    pub(super) async fn put_with_lease(
        &self,
        name: &str,
        value: &str,
        expected: i64,
        lease: i64,
    ) -> Checked<i64> {
        let options = PutOptions {
            lease_id: lease,
            ..PutOptions::default()
        };
        self.put(name, value, expected, options).await
    }

    async fn put(
        &self,
        name: &str,
        value: &str,
        expected: i64,
        options: PutOptions,
    ) -> Checked<i64> {
        let value = Bytes::copy_from_slice(value.as_bytes());
        let key = self.key(name);
        let written = self.store.optimistic_put(&key, value, expected, options);
        let written = written.await?;
        demand!(
            written.succeeded,
            "a put of {name:?} with its revision {expected} did not succeed"
        );
        Ok(written.revision)
    }

    /// Deletes a key that has the expected revision and returns the revision of the deletion.
    pub(super) async fn delete(&self, name: &str, expected: i64) -> Checked<i64> {
        let key = self.key(name);
        let deleted = self
            .store
            .optimistic_delete(&key, expected, DeleteOptions::default());
        let deleted = deleted.await?;
        demand!(
            deleted.succeeded,
            "a delete of {name:?} with its revision {expected} did not succeed"
        );
        Ok(deleted.revision)
    }

    /// Lists the scratch prefix.
    pub(super) async fn list(&self, options: ListOptions) -> Checked<ListResponse> {
        Ok(self.store.list(&self.prefix, options).await?)
    }

    /// Returns a write of a transaction.
    pub(super) fn write(&self, name: &str, value: &str) -> Write {
        Write::Put {
            key: self.key(name),
            value: Bytes::copy_from_slice(value.as_bytes()),
            lease: 0,
        }
    }

    /// Watches a key from after a revision, in the stream of this rule.
    pub(super) async fn watch_key(&self, name: &str, revision: i64) -> Checked<Watch> {
        let options = WatchOptions {
            revision,
            ..self.watch_options()
        };
        let events = self.store.watch(&self.key(name), options).await?;
        Ok(self.started(events))
    }

    /// Watches all keys of the scratch prefix from after a revision, in the stream of this rule.
    pub(super) async fn watch(&self, revision: i64) -> Checked<Watch> {
        let options = WatchOptions {
            revision,
            prefix: true,
            ..self.watch_options()
        };
        self.watch_with(options).await
    }

    pub(super) async fn watch_with(&self, options: WatchOptions) -> Checked<Watch> {
        let events = self.store.watch(&self.prefix, options).await?;
        Ok(self.started(events))
    }

    /// Returns options with the stream of this rule, so that rules do not disturb each other.
    pub(super) fn watch_options(&self) -> WatchOptions {
        WatchOptions {
            stream_key: self.stream_key(),
            ..WatchOptions::default()
        }
    }

    pub(super) fn stream_key(&self) -> String {
        String::from_utf8_lossy(&self.prefix).into_owned()
    }

    pub(super) async fn request_progress(&self) -> Checked {
        let options = RequestProgressOptions {
            stream_key: self.stream_key(),
        };
        Ok(self.store.request_progress(options).await?)
    }

    /// Requests progress until a watch returns a bookmark of a revision or a later one. Returns the
    /// lines of everything before it, without earlier bookmarks, and the revision of the bookmark.
    pub(super) async fn bookmark(
        &self,
        watch: &mut Watch,
        revision: i64,
    ) -> Checked<(Vec<String>, i64)> {
        let deadline = Instant::now() + self.wait_max;
        let mut lines = Vec::new();
        let mut next_request = Instant::now();
        loop {
            if Instant::now() >= next_request {
                self.request_progress().await?;
                next_request = Instant::now() + PROGRESS_INTERVAL;
            }
            let until = next_request.min(deadline);
            match timeout_at(until, watch.events.next()).await {
                Ok(Some(WatchEvent::Bookmark { revision: found })) => {
                    demand!(found > 0, "a bookmark has revision {found}");
                    if found >= revision {
                        return Ok((lines, found));
                    }
                }
                Ok(Some(event)) => lines.push(watch.line(&event)?),
                Ok(None) => return Err(ended()),
                Err(_) if until < deadline => {}
                Err(_) => {
                    return Err(Violation::Broken(format!(
                        "no bookmark of revision {revision} or later within {:?} of requests; before: {lines:?}",
                        self.wait_max
                    )));
                }
            }
        }
    }

    fn started(&self, events: WatchEvents) -> Watch {
        Watch {
            events,
            prefix: self.prefix.clone(),
            wait_max: self.wait_max,
        }
    }
}

/// A watch of a check.
pub(super) struct Watch {
    pub(super) events: WatchEvents,
    prefix: Bytes,
    wait_max: Duration,
}

fn ended() -> Violation {
    Violation::Broken("the watch ended without an error".to_owned())
}

impl Watch {
    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Checked<WatchEvent> {
        let deadline = Instant::now() + self.wait_max;
        match timeout_at(deadline, self.events.next()).await {
            Ok(Some(event)) => Ok(event),
            Ok(None) => Err(ended()),
            Err(_) => Err(Violation::Broken(format!(
                "a watch has no event within {:?}",
                self.wait_max
            ))),
        }
    }

    /// Waits for the next change, as a line; bookmarks are skipped.
    pub(super) async fn next_line(&mut self) -> Checked<String> {
        loop {
            match self.next().await? {
                WatchEvent::Bookmark { .. } => {}
                event => return self.line(&event),
            }
        }
    }

    /// Waits for a number of changes.
    pub(super) async fn lines(&mut self, count: usize) -> Checked<Vec<String>> {
        let mut lines = Vec::with_capacity(count);
        for _ in 0..count {
            lines.push(self.next_line().await?);
        }
        Ok(lines)
    }

    /// Returns an event as a line, with its key relative to the scratch prefix.
    pub(super) fn line(&self, event: &WatchEvent) -> Checked<String> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let name = |key: &Bytes| match key.strip_prefix(&self.prefix[..]) {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => text(key),
        };
        Ok(match event {
            WatchEvent::Added {
                key,
                value,
                revision,
            } => added(&name(key), &text(value), *revision),
            WatchEvent::Modified {
                key,
                value,
                previous_value,
                revision,
            } => modified(&name(key), &text(value), &text(previous_value), *revision),
            WatchEvent::Deleted {
                key,
                previous_value,
                revision,
            } => deleted(&name(key), &text(previous_value), *revision),
            WatchEvent::Bookmark { revision } => format!("BOOKMARK @{revision}"),
            WatchEvent::Error(error) => {
                return Err(Violation::Broken(format!("a watch ended: {error}")));
            }
        })
    }
}

/// Returns the line of a creation.
pub(super) fn added(name: &str, value: &str, revision: i64) -> String {
    format!("ADDED {name}={value} @{revision}")
}

/// Returns the line of a change.
pub(super) fn modified(name: &str, value: &str, previous: &str, revision: i64) -> String {
    format!("MODIFIED {name}={value} (was {previous}) @{revision}")
}

/// Returns the line of a deletion.
pub(super) fn deleted(name: &str, previous: &str, revision: i64) -> String {
    format!("DELETED {name} (was {previous}) @{revision}")
}
