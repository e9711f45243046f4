//! Writes a whole database at once, from entries in key order.
//!
//! Callers are the snapshot RPC and the peer snapshot sender (streams with a size known in advance)
//! and the `portctl` export of a data directory (to a file). A written database cannot be changed
//! by this crate.
//!
//! A meta holds the root page and the page count, and the metas come first in the file. So a stream
//! needs the shape of the tree before its first byte: [`Planner`] reads the source once, only keys
//! and lengths, and returns a [`Layout`]; [`StreamWriter`] reads the source again and writes. Both
//! use the same [`tree::DatabaseBuilder`], so the same entries give the same pages; if the source
//! changed in between, the writer returns an error and the stream is invalid. A target that can
//! seek needs one pass only: [`FileWriter`] writes the metas at the end.
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
