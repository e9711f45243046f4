//! The write-ahead log: what a member has promised, on disk before it says so.
//!
//! The consensus driver is the only writer. It appends raft entries and hard
//! states, syncs once per batch, marks snapshots, and lets go of segments that
//! a snapshot has made useless. Start-up and tools read.
//!
//! The files are etcd's, to the byte (`docs/formats.md`), so that a data
//! directory can be taken over from etcd and handed back, and etcd's tools read
//! ours.
//!
//! ```text
//!  save(state, entries)                          open(dir, snapshot)
//!        │ encode: frame + checksum chain               │
//!        ▼                                              ▼
//!   one buffer ──one write──▶ tail segment ──read──▶ reader: frames, checksums, torn tail
//!                one fdatasync     ▲                    │
//!                                  │ renamed in         ▼
//!              helper thread: next segment,        recovery: rules of a raft log
//!              real zeros, already synced               │
//!                                                       ▼
//!                                             Recovered { state, entries, … }
//! ```
//!
//! What it never does: decide what to write or when to sync, retry a failed
//! write or sync, carry on after one, repair anything but a torn tail, or
//! recycle a segment's old bytes.

mod disk;
mod errors;
mod frame;
mod invariants;
mod lock;
mod opening;
mod payload;
mod prepare;
mod reader;
mod record;
mod recovery;
mod segment_name;
mod segment_reader;
mod torn;
mod wal;
mod zeros;

pub use disk::{Disk, DiskFile, LogDir, StdDisk};
pub use errors::{
    CreateError, Damage, OpenError, PrepareError, ReadError, ReleaseError, WriteError,
};
pub use invariants::LogRuleViolation;
pub use opening::WalOptions;
pub use reader::{LocatedRecord, Records, read_records};
pub use record::Record;
pub use recovery::{Recovered, SnapshotPoint, valid_snapshots};
pub use segment_reader::TornTail;
pub use wal::Wal;

/// Size at which a segment is full: etcd's.
pub const SEGMENT_BYTES: u64 = 64_000_000;
