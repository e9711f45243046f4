//! The rules of this repository, written as checks that run over its own files.
//!
//! Each rule module holds one rule as a pure function from file contents to [`Finding`]s,
//! with tests that show it failing. `tests/tidy.rs` is the only caller: it loads the
//! workspace and runs every rule. No shipped binary links this crate, and no other crate
//! may depend on it.
//!
//! ```text
//!  git ls-files ──▶ Workspace ──▶ RustFile (syntax, comments, test code removed)
//!                       │              │
//!                       ▼              ▼
//!               text rules        syntax rules  ──▶  Vec<Finding>  ──▶  file:line: [rule] what to do
//! ```

pub mod architecture;
pub mod attributes;
pub mod comments;
pub mod finding;
pub mod layering;
pub mod leaks;
pub mod links;
pub mod log_fields;
pub mod manifest;
pub mod markers;
pub mod missing_docs;
pub mod module_docs;
pub mod module_order;
pub mod panics;
pub mod proofs;
pub mod purity;
pub mod register;
pub mod requirements;
pub mod rust_file;
pub mod threats;
pub mod workspace;

pub use finding::Finding;
pub use rust_file::RustFile;
pub use workspace::{TextFile, Workspace};
