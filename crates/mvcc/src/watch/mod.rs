//! Delivers events to watch streams: every event of a watched range, once, in
//! order, whole revisions at a time.
//!
//! ```text
//!  apply thread ──publish──▶  ┌─────┐ ──▶ queue of stream 1 ──take──▶ network task
//!  client requests ──create─▶ │ Hub │ ──▶ queue of stream 2 ──take──▶ network task
//!  sync loop ──sync_step────▶ └─────┘       (bounded, pointers to shared events)
//!                  │ reads
//!               History (the store)
//! ```
//!
//! [`Hub`] owns all watches of a member and is called by the server, which puts
//! it behind one lock. Network tasks own a [`ResponseReceiver`] each and do not touch
//! that lock. A client that does not read costs only a bounded queue: its
//! watches become slow and read [`History`] when there is room.
//!
//! The hub never blocks, never reads a clock (time is an argument), never encodes
//! events on the publishing thread, and never drops an event without either
//! delivering it later or ending the watch with the compact revision or, if history could not
//! be read, with the reason.

mod catch_up;
mod delivery;
mod event;
mod hub;
mod index;
mod interval;
mod progress;
mod publish;
mod range;
mod requests;
mod response;
mod response_queue;
mod sync;
mod watcher;

pub use event::{Event, EventKind, History, HistoryError, RevisionEvents};
pub use hub::{ConnectionId, Hub, HubStats, StreamId, StreamOptions};
pub use publish::PublishError;
pub use range::{KeyRange, RangeEnd};
pub use requests::RequestError;
pub use response::{NO_WATCH_ID, Response};
pub use response_queue::{Limits, Queued, ResponseReceiver, Wake};
pub use sync::{SyncBatch, SyncBudget, SyncPlan, SyncReport};
pub use watcher::{WatchInfo, WatchState};
