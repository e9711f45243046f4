//! Watching a collection: events as JSON lines, from one watch of the store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use portunus_client::kubernetes::{
    Error, RequestProgressOptions, WatchEvent, WatchEvents, WatchOptions as StoreOptions,
};
use portunus_objects::status::Status;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::context::Context;
use super::list;
use super::list_options::{Consistency, ListOptions, WatchOptions, timeout_seconds};
use super::selection::Selection;
use crate::api::{Api, ApiResource};
use crate::body::Body;
use crate::failure::Outcome;
use crate::negotiate::JSON;
use crate::respond::bytes_response;
use crate::service::Shared;
use crate::store::{decode, store_failure};
use crate::watch_events::{EventKind, EventPrinter};

/// How long a watch lasts whose client names no time: between this and twice as long.
const TIMEOUT_DEFAULT_S: u64 = 1800;
/// The longest watch.
const TIMEOUT_MAX_S: u64 = 24 * 60 * 60;
/// How often a watch without events receives a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

pub(super) async fn watch(context: &Context<'_>) -> Outcome<Response<Body>> {
    let printing = context.printing()?;
    context.check_form(printing)?;
    let options = WatchOptions::parse(context.query)?;
    let selection = Selection::parse(context)?;
    let timeout = timeout(context)?;
    let (initial, after) = if options.sends_initial_events {
        let list = ListOptions {
            consistency: Consistency::Newest {
                at_least: options.at_least,
            },
            limit: 0,
            is_exact_by_limit: false,
        };
        let part = list::read(context, &list, &selection).await?;
        (part.items, part.revision)
    } else {
        (Vec::new(), options.after.unwrap_or_default())
    };
    let events = open(context, &selection, after).await?;
    let stream = Watch {
        shared: Arc::clone(context.shared),
        group: context.info.group.clone(),
        version: context.info.version.clone(),
        plural: context.info.resource.clone(),
        stream_key: stream_key(context.target.resource),
        printer: EventPrinter::new(context.target, printing, &context.shared.metrics),
        selection,
        options,
        deadline: Instant::now() + timeout,
        revision: after,
    };
    Ok(response(stream.events(initial, events)))
}

/// Returns a response that is a stream of events.
pub(super) fn response(
    events: impl futures_core::Stream<Item = Bytes> + Send + 'static,
) -> Response<Body> {
    let mut response = bytes_response(StatusCode::OK, JSON, Bytes::new());
    *response.body_mut() = Body::stream(events);
    let value = HeaderValue::from_static(JSON);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// Returns how long a watch lasts.
pub(super) fn timeout(context: &Context<'_>) -> Outcome<Duration> {
    let seconds = timeout_seconds(context.query)?.unwrap_or_else(|| {
        // Spread, so that not all clients come back at once.
        TIMEOUT_DEFAULT_S + Uuid::new_v4().as_u128() as u64 % TIMEOUT_DEFAULT_S
    });
    Ok(Duration::from_secs(seconds.min(TIMEOUT_MAX_S)))
}

fn stream_key(resource: &ApiResource) -> String {
    resource.name.to_string()
}

/// Starts the watch of the store.
async fn open(context: &Context<'_>, selection: &Selection, after: i64) -> Outcome<WatchEvents> {
    let is_one_scope =
        !context.target.resource.definition.namespaced || !context.namespace().is_empty();
    let name = selection.name().filter(|_| is_one_scope);
    let key = match name {
        Some(name) => context.keys.object(context.namespace(), name),
        None => context.keys.collection(context.namespace()),
    };
    let options = StoreOptions {
        stream_key: stream_key(context.target.resource),
        revision: after,
        prefix: name.is_none(),
    };
    let opened = context.store().watch(key.as_bytes(), options).await;
    opened.map_err(|error| context.store_failure(&error))
}

/// A watch of a client.
struct Watch {
    shared: Arc<Shared>,
    group: String,
    version: String,
    plural: String,
    stream_key: String,
    selection: Selection,
    options: WatchOptions,
    printer: EventPrinter,
    deadline: Instant,
    /// The revision up to which everything was sent.
    revision: i64,
}

impl Watch {
    /// Returns the events as JSON lines: the initial ones, then the changes, then, at the end of
    /// the time, a bookmark.
    fn events(
        mut self,
        initial: Vec<Value>,
        mut events: WatchEvents,
    ) -> impl futures_core::Stream<Item = Bytes> + Send + 'static {
        async_stream::stream! {
            for object in initial {
                yield self.printer.line(EventKind::Added, object);
            }
            if self.options.marks_end_of_initial_events {
                yield self.printer.end_of_initial_events(self.revision);
            }
            let mut bookmark_at = Instant::now() + BOOKMARK_INTERVAL;
            loop {
                tokio::select! {
                    biased;
                    () = sleep_until(self.deadline) => break,
                    () = self.shared.drain.ending() => break,
                    () = sleep_until(bookmark_at), if self.options.sends_bookmarks => {
                        bookmark_at = Instant::now() + BOOKMARK_INTERVAL;
                        self.request_progress().await;
                    }
                    event = events.next() => {
                        let Some(event) = event else { break };
                        let (line, is_last) = self.on_event(event);
                        if let Some(line) = line {
                            yield line;
                        }
                        if is_last {
                            return;
                        }
                    }
                }
            }
            if self.options.sends_bookmarks && self.revision > 0 {
                yield self.printer.bookmark(self.revision);
            }
        }
    }

    /// Asks the store how far the watch is. The answer is an event.
    async fn request_progress(&self) {
        if !self
            .shared
            .progress
            .is_due(&self.stream_key, BOOKMARK_INTERVAL / 2)
        {
            return;
        }
        let options = RequestProgressOptions {
            stream_key: self.stream_key.clone(),
        };
        if let Err(error) = self.shared.store.request_progress(options).await {
            tracing::debug!(error = %error, "progress request failed");
        }
    }

    /// Returns the line for an event of the store, if there is one, and whether it is the last.
    fn on_event(&mut self, event: WatchEvent) -> (Option<Bytes>, bool) {
        let revision = event.revision();
        let line = match self.change(event) {
            Ok(None) => None,
            Ok(Some(Change::Object(kind, object))) => Some(self.printer.line(kind, object)),
            Ok(Some(Change::Bookmark(revision))) if self.options.sends_bookmarks => {
                Some(self.printer.bookmark(revision))
            }
            Ok(Some(Change::Bookmark(_))) => None,
            Err(status) => return (Some(self.printer.error(&status)), true),
        };
        self.revision = revision.unwrap_or(self.revision).max(self.revision);
        (line, false)
    }

    /// Returns what a change of the store means for this client: a selector may see an object
    /// come and go while the store changes it.
    fn change(&self, event: WatchEvent) -> Result<Option<Change>, Box<Status>> {
        let api: &Api = &self.shared.api;
        let Some(resource) = api.resource(&self.group, &self.plural) else {
            return Ok(None);
        };
        let read = |value: &[u8], revision| {
            let object = decode(resource, value, revision, &self.version);
            let object = object.map_err(|failure| Box::new(failure.status().clone()))?;
            let is_selected = self.selection.matches(resource, &object);
            Ok::<_, Box<Status>>((object, is_selected))
        };
        let change = match event {
            WatchEvent::Added {
                value, revision, ..
            } => {
                let (object, is_selected) = read(&value, revision)?;
                is_selected.then_some((EventKind::Added, object))
            }
            WatchEvent::Modified {
                value,
                previous_value,
                revision,
                ..
            } => {
                let (object, is_selected) = read(&value, revision)?;
                if self.selection.is_everything() {
                    Some((EventKind::Modified, object))
                } else {
                    let (before, was_selected) = read(&previous_value, revision)?;
                    match (was_selected, is_selected) {
                        (true, true) => Some((EventKind::Modified, object)),
                        (false, true) => Some((EventKind::Added, object)),
                        (true, false) => Some((EventKind::Deleted, before)),
                        (false, false) => None,
                    }
                }
            }
            WatchEvent::Deleted {
                previous_value,
                revision,
                ..
            } => {
                let (object, was_selected) = read(&previous_value, revision)?;
                was_selected.then_some((EventKind::Deleted, object))
            }
            WatchEvent::Bookmark { revision } => return Ok(Some(Change::Bookmark(revision))),
            WatchEvent::Error(error) => return Err(Box::new(ended(resource, &error))),
            _ => None,
        };
        Ok(change.map(|(kind, object)| Change::Object(kind, object)))
    }
}

/// A change as a client sees it.
enum Change {
    Object(EventKind, Value),
    Bookmark(i64),
}

/// Returns the `Status` of the last event of a watch that the store ended.
fn ended(resource: &ApiResource, error: &Error) -> Status {
    match error {
        Error::Compacted { .. } => {
            Status::expired("The resourceVersion for the provided watch is too old.")
        }
        error => store_failure(resource, "watch", error).status().clone(),
    }
}
