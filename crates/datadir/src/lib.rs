//! The data directory of a member.
//!
//! ```text
//! DATA-DIR/
//!   portunus.lock        held while a process runs here
//!   member/
//!     wal/               the write-ahead log, in etcd's format
//!     portunus/          the backend (LMDB)
//!     portunus-INDEX/    the backend, if it came from the leader as a snapshot of INDEX
//!     incoming-INDEX/    such a snapshot, complete and durable, before it is installed
//!     receiving-INDEX/   such a snapshot while it arrives
//!     obsolete-NAME/     any of these while it is removed
//!     snap/              only etcd has this; its database is copied, then
//!     snap.imported/     renamed, for a way back to etcd
//! ```
//!
//! | module | concept |
//! | --- | --- |
//! | [`DataDir`] | the lock, the backend's place, creation and removal |
//! | `take_over` | data that etcd left here becomes a backend |
//! | `snapshots` | snapshots of the leader, from their arrival to their removal |
//! | [`import`], [`export`] | a bbolt file becomes a backend, and the reverse |
//! | [`migrate`] | the directory of a stopped member for another version |
//!
//! Used by the server and by `portctl`. Nothing here starts a thread or a runtime, or connects
//! to another process.
//!
//! Invariants:
//! - One process at a time changes a directory.
//! - What is incomplete never has the name of something complete, also after a crash at any step.
//! - A snapshot that the log needs is there until it is installed or a newer one is.
//! - Files of etcd are renamed only after everything in them is durable in the backend.

mod data_dir;
pub mod export;
pub mod import;
pub mod migrate;
mod snapshots;
mod take_over;

pub use data_dir::{DataDir, DataDirError};
