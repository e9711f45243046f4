//! Authorisation: whether a user may do what a request asks for.
//!
//! ```text
//!  Masters ──▶ PublicPaths ──▶ PolicyFile ──▶ denied
//! ```
//!
//! Each authorizer allows or has no opinion; [`FirstAllowed`] asks them in turn and denies what
//! none of them allows.

mod policy;
mod public_paths;
mod union;

use crate::identity::{Identity, MASTERS};
use crate::request::RequestInfo;

pub use policy::{PolicyFile, PolicyFileError};
pub use public_paths::PublicPaths;
pub use union::FirstAllowed;

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The user may.
    Allowed,
    /// The user may not. The reason, possibly empty, is part of the answer.
    Denied {
        /// Why not.
        reason: String,
    },
}

impl Decision {
    /// Creates a denial without a reason.
    #[must_use]
    pub fn denied() -> Decision {
        Decision::Denied {
            reason: String::new(),
        }
    }

    /// Creates the decision from whether the user may.
    #[must_use]
    pub fn from_allowed(is_allowed: bool) -> Decision {
        match is_allowed {
            true => Decision::Allowed,
            false => Decision::denied(),
        }
    }
}

/// Decides what users may do.
pub trait Authorizer: Send + Sync + 'static {
    /// Decides about one request.
    fn authorize(&self, identity: &Identity, request: &RequestInfo) -> Decision;
}

/// Allows everything to everybody: `--authorization-mode=AlwaysAllow`.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _: &Identity, _: &RequestInfo) -> Decision {
        Decision::Allowed
    }
}

/// Allows everything to members of [`MASTERS`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Masters;

impl Authorizer for Masters {
    fn authorize(&self, identity: &Identity, _: &RequestInfo) -> Decision {
        Decision::from_allowed(identity.is_in(MASTERS))
    }
}
