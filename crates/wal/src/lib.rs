//! The write-ahead log: entries and hard states that a member persists before it acknowledges them.
//!
//! The consensus driver is the only writer. It appends raft entries and hard
//! states, syncs once per batch, records snapshots, and removes segments that a
//! snapshot has made obsolete. Start-up and tools read the log.
//!
//! The files equal etcd's byte for byte (`docs/formats.md`), so that a data
//! directory can be migrated from etcd and back, and etcd's tools can read it.
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
//! The log never decides what to write or when to sync, never retries a failed
//! write or sync or continues after one, repairs only a torn tail, and never
//! reuses the bytes of an old segment.

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

/// Size at which a segment is full; the same as in etcd.
pub const SEGMENT_BYTES: u64 = 64_000_000;
