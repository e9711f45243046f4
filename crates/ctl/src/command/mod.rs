//! One module per command: its flags, its checks in etcdctl's order and with its texts, its calls.
//!
//! A command reads arguments, asks the client and hands the answer to the printer. It keeps no
//! state and knows nothing of other commands, except that `txn` reads its requests as `get`,
//! `put` and `del` read theirs.

pub mod alarm;
pub mod auth;
pub mod check;
pub mod compaction;
pub mod completion;
pub mod defrag;
pub mod del;
pub mod downgrade;
pub mod endpoint;
pub mod gate;
pub mod get;
pub mod keys;
pub mod lease;
pub mod member;
pub mod migrate;
pub mod move_leader;
pub mod put;
pub mod role;
pub mod snapshot;
pub mod txn;
pub mod user;
pub mod version;
pub mod watch;

mod load;
mod members;
mod no_args;
mod watch_request;
