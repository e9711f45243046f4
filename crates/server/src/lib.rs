//! One member of a cluster.
//!
//! So far it holds the project's own feature gates and the commands about them; the
//! server itself is not in this version.

pub mod command;
pub mod gates;
pub mod version;
