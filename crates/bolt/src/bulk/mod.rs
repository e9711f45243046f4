//! Writing a whole database at once, from entries that come in order.
//!
//! Callers are the snapshot RPC and the peer snapshot sender (streaming, size announced first),
//! `portctl` export and hand-back of a data directory (to a file). There is no way to change a
//! database afterwards; etcd takes over from there.
//!
//! A meta names the root page and the page count, and the metas come first in the file. So a
//! stream needs the shape of the tree before its first byte: [`Planner`] goes through the source
//! once, looking only at keys and lengths, and yields a [`Layout`]; [`StreamWriter`] goes through
//! it again and writes. Both drive the same [`tree::DatabaseBuilder`], so they cannot disagree about
//! the same entries; if the source changed in between, the writer says so and the stream is void.
//! A target that can seek needs one pass only: [`FileWriter`] fills the metas in at the end.
//!
//! Memory: one page per level of the tree, plus the names of the buckets.

mod branches;
mod directory;
mod sinks;
mod stream_reader;
mod tree;
mod writers;

pub use stream_reader::{STREAM_HEAD_BYTES, StreamError, StreamReader};
pub use tree::{KEY_BYTES_MAX, VALUE_BYTES_MAX, WriteError};
pub use writers::{BulkOptions, FileWriter, Layout, OptionsError, Planner, StreamWriter};
