//! bbolt database files, as etcd keeps them in its data directories and sends them as snapshots.
//!
//! A member takes over an etcd data directory, receives a snapshot from a Go leader, and hands
//! its own state back in the same format. This crate is the only place that knows the bytes of
//! that format; `docs/formats-bolt.md` specifies them.
//!
//! ```text
//!   file or bytes ──▶ Reader ──▶ Bucket ──▶ iter / get      import, restore
//!                       ├──────▶ check ──▶ Report           before a snapshot is trusted
//!                       └──────▶ snapshot::status / hash    etcdutl, Maintenance.Hash
//!
//!   sorted source ──▶ Planner ──▶ Layout ─┐                 exact size before the first byte
//!   same source again ────────────────────┴▶ StreamWriter ──▶ any Write (a socket)
//!   sorted source ────────────────────────▶ FileWriter ─────▶ Write + Seek (one pass)
//! ```
//!
//! What it never does: change a file in place, keep a freelist, or read a key's meaning (the one
//! exception is [`snapshot::status`], which reports what `etcdutl snapshot status` reports).
//! Nothing a file contains can make it panic or loop; every lie is a typed error that names the
//! page it was told on.

mod bulk;
mod check;
mod cursor;
mod format;
mod meta;
mod page;
mod reader;
pub mod snapshot;

pub use bulk::{
    BulkOptions, FileWriter, KEY_BYTES_MAX, Layout, OptionsError, Planner, StreamWriter,
    VALUE_BYTES_MAX, WriteError,
};
pub use check::{PROBLEMS_KEPT_MAX, Problem, Report, check};
pub use cursor::{Entries, Entry, EntryValue, Pairs};
pub use format::PageId;
pub use meta::{Meta, MetaFault};
pub use page::ReadError;
pub use reader::{Bucket, Buckets, OpenError, Reader};
