//! Locks, elections and optimistic transactions, with the keys and algorithms of clientv3's
//! `concurrency` package: programs in Go and in Rust exclude each other.
//!
//! | clientv3 | here |
//! | --- | --- |
//! | `NewSession` | [`Session::start`] |
//! | `NewMutex`, `Lock`, `TryLock`, `Unlock` | [`Mutex::new`], [`Mutex::lock`], [`Mutex::try_lock`], [`Lock::unlock`] |
//! | `IsOwner`, `Key`, `Header` | [`Lock::is_held`], [`Lock::key`], [`Lock::header`] |
//! | `NewElection`, `Campaign`, `Proclaim`, `Resign` | [`Election::new`], [`Election::campaign`], [`Leadership::proclaim`], [`Leadership::resign`] |
//! | `Leader`, `Observe` | [`Election::leader`], [`Election::observe`] |
//! | `NewSTM` | [`stm`] |
//!
//! ```text
//!  Session ── lease, renewed by a task ──┐
//!                                        ├── key <name>/<lease in hex>, deleted with the lease
//!  Mutex, Election ── queue of keys ─────┘
//!      the key with the lowest create revision is the holder
//!      the others wait until all keys that were created before theirs are deleted
//! ```
//!
//! # Fencing
//!
//! A lock whose holder believes that it holds it is not enough: the holder may be paused longer than
//! its TTL. Every holder has a **fencing revision**, [`Lock::revision`], larger than the one of every
//! holder before. Give it to the resource that the lock protects and let the resource refuse smaller
//! ones; if the resource is in the same store, put [`Lock::is_held`] into the transaction that writes
//! it.
//!
//! # Differences from clientv3
//!
//! - Two tasks that lock one name with one session exclude each other; in Go, the second one holds
//!   the lock, too.
//! - The waits go on when a member is unavailable, until the session is lost. The request that queues
//!   a key and the one that removes it can be repeated without harm.
//! - A future that is dropped, such as by a timeout, removes its key from the queue in the background.
//! - A key that a late request puts back into a queue, such as after a partition, is removed for a minute.

mod election;
mod error;
mod mutex;
mod observer;
mod queue;
mod session;
mod stm;

pub use self::election::{Election, Leadership, Proposal};
pub use self::error::ConcurrencyError;
pub use self::mutex::{Lock, Mutex};
pub use self::observer::Observer;
pub use self::session::{Session, SessionOptions};
pub use self::stm::{Committed, Isolation, StmError, StmOptions, Transaction, stm};
