//! The key-value state machine of one member.
//!
//! ```text
//!   apply thread                                   any thread
//!   ┌──────────── Store ────────────┐   publishes   ┌── Reader ──┐
//!   │ rules decide, slots remember  │ ────────────▶ │ one view,  │
//!   └───────┬───────────────────────┘  index, then  │ one        │
//!           │ batches                  revision     │ revision   │
//!           ▼                                       └─────┬──────┘
//!   write-behind thread ──commit──▶ Backend ◀─values──────┘
//!                                                (only what left memory)
//! ```
//!
//! The apply thread owns [`Store`] and hands it every committed log entry. All
//! others hold a [`Reader`], which never takes a lock that the apply thread
//! waits for. The rules that decide what an entry means are pure ([`rules`]);
//! where records end up is behind [`backend::Backend`].
//!
//! This crate never reads a clock to decide a result, never talks to peers or
//! clients, and knows nothing of raft beyond the index and term of an entry.

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

pub use config::Config;
pub use error::{ApplyError, OpenError, ReadError, StoreFault};
pub use reader::{CompactionHashJob, KvHash, RangeStream, Reader};
pub use revision::Revision;
pub use rules::lease::{LeaseLookup, NO_LEASE};
pub use rules::range::KeyRange;
pub use rules::txn::RangeResults;
pub use store::{Applied, CompactionStep, EntryId, Hooks, RestoreProgress, Restored, Store};
pub use version::{Value, Version};
pub use watch::{Event, EventKind, RevisionEvents};
