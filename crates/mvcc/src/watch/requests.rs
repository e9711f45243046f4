//! Requests of clients on their stream, and cancellation of watches by the server.
//!
//! Refusals have etcd's exact texts; clients compare them.

use std::borrow::Cow;
use std::sync::Arc;

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WatchCreateRequest;
use thiserror::Error;

use super::hub::{Hub, StreamId, WatcherGroup};
use super::range::KeyRange;
use super::response::Response;
use super::response_queue::ResponseSender;
use super::watcher::{Filters, WatchInfo, WatchState, Watcher, WatcherKey};

/// Sent when a client names a watch id that its stream already uses.
const DUPLICATE_ID_REASON: &str = "mvcc: duplicate watch ID provided on the WatchStream";
/// Sent when a requested range can hold no key.
const EMPTY_RANGE_REASON: &str = "mvcc: watcher range is empty";

/// An error of a request that got no answer in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The stream was closed.
    #[error("the watch stream is closed; open a new one")]
    UnknownStream,
    /// Too many answers are unread.
    #[error("the client does not read its answers; retry after Wake::drained")]
    Backpressure,
}

impl Hub {
    /// Answers a create request in the stream, also with a refusal. Returns the
    /// watch id if the watch was created.
    ///
    /// The caller checks permission first, but only for a start revision of at
    /// least 0, and answers a failure through [`Self::refuse`].
    ///
    /// # Errors
    /// [`RequestError`] if the stream cannot take an answer; nothing was changed.
    pub fn create(
        &mut self,
        id: StreamId,
        request: WatchCreateRequest,
    ) -> Result<Option<i64>, RequestError> {
        let sender = self.sender_with_room(id)?;
        match self.try_create(id, request) {
            Ok((key, watch_id, next)) => {
                sender.push_response(Response::created(watch_id, self.revision));
                self.update_state(key, next);
                Ok(Some(watch_id))
            }
            Err(reason) => {
                sender.push_response(Response::refused(self.revision, Cow::Borrowed(reason)));
                Ok(None)
            }
        }
    }

    /// Answers a create request that must not be served, with the reason.
    ///
    /// # Errors
    /// [`RequestError`] if the stream cannot take an answer.
    pub fn refuse(
        &mut self,
        id: StreamId,
        reason: impl Into<Cow<'static, str>>,
    ) -> Result<(), RequestError> {
        let sender = self.sender_with_room(id)?;
        sender.push_response(Response::refused(self.revision, reason.into()));
        Ok(())
    }

    /// Answers a cancel request; false, and no answer, for an unknown watch.
    ///
    /// # Errors
    /// [`RequestError`] if the stream cannot take an answer; nothing was changed.
    pub fn cancel(&mut self, id: StreamId, watch_id: i64) -> Result<bool, RequestError> {
        let sender = self.sender_with_room(id)?;
        let watch = self
            .streams
            .get(&id)
            .and_then(|stream| stream.watches.get(&watch_id));
        let Some(key) = watch.copied() else {
            return Ok(false);
        };
        self.remove_watcher(key);
        sender.push_response(Response::canceled(
            watch_id,
            self.revision,
            Cow::Borrowed(""),
        ));
        Ok(true)
    }

    /// Cancels every watch that the predicate selects, with the reason. Events
    /// that were queued before are sent first. Returns the number of cancelled
    /// watches.
    pub fn cancel_where(
        &mut self,
        reason: &str,
        mut ends: impl FnMut(WatchInfo<'_>) -> bool,
    ) -> usize {
        let ending: Vec<WatcherKey> = self
            .watchers
            .iter()
            .filter(|(_, watcher)| {
                self.groups.get(watcher.group).is_some_and(|group| {
                    ends(WatchInfo {
                        stream: watcher.stream,
                        watch_id: watcher.watch_id,
                        range: &group.range,
                        state: watcher.state,
                    })
                })
            })
            .map(|(key, _)| key)
            .collect();
        for key in &ending {
            self.end_watcher(*key, |watch_id, revision| {
                Response::canceled(watch_id, revision, Cow::Owned(reason.to_owned()))
            });
        }
        ending.len()
    }

    fn sender_with_room(&self, id: StreamId) -> Result<Arc<ResponseSender>, RequestError> {
        let stream = self.streams.get(&id).ok_or(RequestError::UnknownStream)?;
        if !stream.sender.has_response_room() {
            return Err(RequestError::Backpressure);
        }
        Ok(Arc::clone(&stream.sender))
    }

    /// Registers a watch without placing it. Returns its key, its id and its next revision.
    fn try_create(
        &mut self,
        id: StreamId,
        request: WatchCreateRequest,
    ) -> Result<(WatcherKey, i64, i64), &'static str> {
        if request.start_revision < 0 {
            return Err(EtcdError::Compacted.text());
        }
        let filters = Filters::from_request(&request);
        let range =
            KeyRange::from_request(request.key, request.range_end).ok_or(EMPTY_RANGE_REASON)?;
        // The caller checked that the stream exists.
        let stream = self.streams.get_mut(&id).ok_or(EMPTY_RANGE_REASON)?;
        if stream.watches.len() >= self.limits.watches_max {
            self.refused_per_stream += 1;
            return Err(EtcdError::TooManyRequests.text());
        }
        let connection = stream.connection;
        let in_connection = connection.and_then(|id| self.connection_watches.get(&id));
        if in_connection.is_some_and(|count| *count >= self.limits.connection_watches_max) {
            self.refused_per_connection += 1;
            return Err(EtcdError::TooManyRequests.text());
        }
        let watch_id = if request.watch_id == 0 {
            while stream.watches.contains_key(&stream.next_watch_id) {
                stream.next_watch_id += 1;
            }
            stream.next_watch_id
        } else if stream.watches.contains_key(&request.watch_id) {
            return Err(DUPLICATE_ID_REASON);
        } else {
            request.watch_id
        };
        let group = match self.index.registered(&range).iter().find(|key| {
            self.groups
                .get(**key)
                .is_some_and(|group| group.filters == filters)
        }) {
            Some(key) => *key,
            None => {
                let key = self.groups.insert(WatcherGroup {
                    range: range.clone(),
                    filters,
                    watchers: 0,
                    synced: Vec::new(),
                    last_event_revision: 0,
                    matched: Vec::new(),
                });
                self.index.insert(&range, key);
                key
            }
        };
        if let Some(group) = self.groups.get_mut(group) {
            group.watchers += 1;
        }
        let next = match request.start_revision {
            0 => self.revision + 1,
            start => start,
        };
        // In no list yet: a future watch that waits for nothing in particular.
        let state = WatchState::Future { start: i64::MAX };
        let key = self.watchers.insert(Watcher {
            stream: id,
            watch_id,
            group,
            start_revision: request.start_revision,
            prev_kv: request.prev_kv,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            state,
            member_index: 0,
            ticket: 0,
            tick_revision: self.revision,
            caught_up_since_tick: false,
        });
        if request.watch_id == 0 {
            stream.next_watch_id += 1;
        }
        stream.watches.insert(watch_id, key);
        if let Some(connection) = connection {
            *self.connection_watches.entry(connection).or_default() += 1;
        }
        stream.future += 1;
        self.future.insert((i64::MAX, key));
        Ok((key, watch_id, next))
    }

    /// Cancels a watch; `final_response` builds its last response.
    pub(super) fn end_watcher(
        &mut self,
        key: WatcherKey,
        final_response: impl FnOnce(i64, i64) -> Response,
    ) {
        let Some(watcher) = self.watchers.get(key) else {
            return;
        };
        let watch_id = watcher.watch_id;
        let sender = self
            .streams
            .get(&watcher.stream)
            .map(|stream| Arc::clone(&stream.sender));
        self.remove_watcher(key);
        if let Some(sender) = sender {
            sender.push_response(final_response(watch_id, self.revision));
        }
    }
}
