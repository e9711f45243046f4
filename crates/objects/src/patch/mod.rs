//! Patches: JSON Patch and JSON merge patch, with the limits and texts of Kubernetes.
//!
//! Kubernetes applies patches with a library whose details clients rely on: `replace` creates a
//! missing field, indices may be negative, the text before the first `/` of a path is ignored,
//! and a merge patch drops nulls inside of new values. These modules behave the same way. The
//! result of a patch is nested at most [`crate::decode::DEPTH_MAX`] deep.

mod json_patch;
mod merge;

pub use json_patch::*;
pub use merge::*;

use thiserror::Error;

use crate::status::{Cause, Status};

/// The most operations of a JSON Patch.
pub const OPERATIONS_MAX: usize = 10_000;

/// The most bytes of JSON that the copy operations of one JSON Patch may create.
pub const COPIED_BYTES_MAX: usize = 3 << 20;

/// A patch that is malformed or cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The body is no patch.
    #[error("{0}")]
    Malformed(String),
    /// The patch has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}")]
    TooManyOperations {
        /// The number of operations.
        count: usize,
    },
    /// An operation does not apply to the document.
    #[error("{0}")]
    DoesNotApply(String),
    /// The copy operations create too much.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {copied_bytes}, exceeding the limit {COPIED_BYTES_MAX}"
    )]
    CopyTooLarge {
        /// The bytes that would have been copied.
        copied_bytes: usize,
    },
    /// The result would be nested too deeply.
    #[error(
        "the patched document would be nested more than {} levels deep",
        crate::decode::DEPTH_MAX
    )]
    TooDeep,
}

impl PatchError {
    /// Returns the answer to a request with this patch. Kubernetes hides why a patch does not
    /// apply; here a cause names the operation.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            PatchError::Malformed(_) => Status::bad_request(&self.to_string()),
            PatchError::TooManyOperations { .. } => {
                Status::request_entity_too_large(&self.to_string())
            }
            PatchError::DoesNotApply(_) | PatchError::CopyTooLarge { .. } | PatchError::TooDeep => {
                let mut status = Status::unprocessable_patch();
                status.details.get_or_insert_default().causes = vec![Cause {
                    message: self.to_string(),
                    ..Cause::default()
                }];
                status
            }
        }
    }
}
