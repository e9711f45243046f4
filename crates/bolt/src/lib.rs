//! bbolt database files, as etcd keeps them in its data directories and sends them as snapshots.
//!
//! A member imports an etcd data directory, receives a snapshot from a Go leader, and exports its
//! own state in the same format. Only this crate reads and writes that format;
//! `docs/formats-bolt.md` specifies it.
//!
//! ```text
//!   file or bytes ──▶ Reader ──▶ Bucket ──▶ iter / get      import, restore
//!                       ├──────▶ check ──▶ Report           before a snapshot is trusted
//!                       └──────▶ snapshot::status / hash    etcdutl, Maintenance.Hash
//!
//!   sorted source ──▶ Planner ──▶ Layout ─┐                 exact size before the first byte
//!   same source again ────────────────────┴▶ StreamWriter ──▶ any Write (a socket)
//!   sorted source ────────────────────────▶ FileWriter ─────▶ Write + Seek (one pass)
//!   such a stream, while it arrives ──────▶ StreamReader ───▶ entries in order
//! ```
//!
//! A snapshot, streamed with its size known in advance:
//!
//! ```
//! use bytes::Bytes;
//! use portunus_bolt::snapshot::{DIGEST_BYTES, DigestWriter};
//! use portunus_bolt::{BulkOptions, Planner, Reader, StreamWriter};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let entries = [("authEnabled", "0"), ("authRevision", "1")];
//!
//! let mut planner = Planner::new(BulkOptions::default());
//! planner.bucket(b"auth")?;
//! for (key, value) in entries {
//!     planner.entry(key.as_bytes(), value.len() as u64)?;
//! }
//! let layout = planner.finish()?;
//! let announced_bytes = layout.file_bytes() + DIGEST_BYTES;
//!
//! let mut writer = StreamWriter::new(layout, DigestWriter::new(Vec::new()))?;
//! writer.bucket(b"auth")?;
//! for (key, value) in entries {
//!     writer.entry(key.as_bytes(), value.as_bytes())?;
//! }
//! let file = writer.finish()?.finish()?;
//! assert_eq!(file.len() as u64, announced_bytes);
//!
//! let reader = Reader::from_bytes(Bytes::from(file))?;
//! let auth = reader.bucket(b"auth")?.ok_or("no such bucket")?;
//! assert_eq!(auth.get(b"authRevision")?, Some(&b"1"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! This crate never changes a file in place, never writes a freelist, and does not interpret keys
//! (except in [`snapshot::status`], which reports what `etcdutl snapshot status` reports). No file
//! content can make it panic or loop; every inconsistency is a typed error that names the page.

mod bucket;
mod bulk;
mod check;
mod cursor;
mod format;
mod meta;
mod page;
mod page_set;
mod reader;
pub mod snapshot;

pub use bucket::Bucket;
pub use bulk::{
    BulkOptions, FileWriter, KEY_BYTES_MAX, Layout, OptionsError, Planner, STREAM_HEAD_BYTES,
    StreamError, StreamReader, StreamWriter, VALUE_BYTES_MAX, WriteError,
};
pub use check::{PROBLEMS_KEPT_MAX, Problem, Report, check};
pub use cursor::{Entries, Entry, EntryValue, Pairs};
pub use format::PageId;
pub use meta::{Meta, MetaFault};
pub use page::ReadError;
pub use reader::{Buckets, OpenError, Reader};
