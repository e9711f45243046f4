//! The key-value state machine of one member.
//!
//! ```text
//!   apply thread                                   any thread
//!   ┌──────────── Store ────────────┐   publishes   ┌── Reader ──┐
//!   │ rules decide, slots hold data │ ────────────▶ │ one view,  │
//!   └───────┬───────────────────────┘  index, then  │ one        │
//!           │ batches                  revision     │ revision   │
//!           ▼                                       └─────┬──────┘
//!   write-behind thread ──commit──▶ Backend ◀─values──────┘
//!                                                (evicted values only)
//! ```
//!
//! The apply thread owns [`Store`] and applies every committed log entry to it.
//! All other threads hold a [`Reader`], which never takes a lock that the apply
//! thread waits for. The rules that decide what an entry means are pure
//! ([`rules`]); [`backend::Backend`] stores the records.
//!
//! This crate never reads a clock to decide a result, never communicates with
//! peers or clients, and uses only the index and term of a raft entry.

pub mod backend;
mod config;
mod error;
pub mod lease;
mod reader;
pub mod revision;
pub mod rules;
mod store;
mod version;
pub mod watch;

pub use config::{Commits, Config};
pub use error::{ApplyError, OpenError, ReadError, StoreFault};
pub use reader::{CompactionHashJob, KvHash, RangeStream, Reader};
pub use revision::Revision;
pub use rules::lease::LeaseLookup;
pub use rules::range::KeyRange;
pub use rules::txn::RangeResults;
pub use store::{Applied, CompactionStep, EntryId, Hooks, RestoreProgress, Restored, Store};
pub use version::{Value, Version};
pub use watch::{Event, EventKind, RevisionEvents};
