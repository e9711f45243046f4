//! The contract between Kubernetes and its store (KEP-4743).
//!
//! An API server, or a controller that keeps its objects in etcd, needs seven operations with
//! exact semantics. [`Interface`] is that contract, so that code above it can be tested without a
//! server and a store can be checked without Kubernetes. Every request requires a leader.
//!
//! ```text
//!  API server, controllers, tests
//!         │ Interface: get, list, count, optimistic_put, optimistic_delete, watch, request_progress
//!         ▼
//!  one implementation: Kubernetes over a Client, Memory, or any other
//! ```
//!
//! Beside them, `grant_lease` is for objects that expire; implementations may leave it out.
//!
//! The module never retries a write that may have been sent: after an error that
//! [leaves the outcome open](Error::outcome_is_unknown) the caller reads the key again.

mod arguments;
pub mod contract;
mod error;
mod etcd;
mod etcd_watch;
mod event;
mod interface;
mod memory;
mod record;

pub use error::Error;
pub use etcd::Kubernetes;
pub use event::{WatchEvent, WatchEvents};
pub use interface::{
    CountOptions, DeleteOptions, DeleteResponse, GetOptions, GetResponse, Interface, KeyValue,
    ListOptions, ListResponse, PutOptions, PutResponse, RequestProgressOptions, WatchOptions,
};
pub use memory::{Memory, Write};
pub use record::{Recorder, RecordingError, Replay};
