//! Several authorizers in turn.

use std::sync::Arc;

use super::{Authorizer, Decision};
use crate::identity::Identity;
use crate::request::RequestInfo;

/// Asks authorizers in order; allowed is what one of them allows. Without authorizers nothing is.
#[derive(Clone, Default)]
pub struct FirstAllowed {
    authorizers: Vec<Arc<dyn Authorizer>>,
}

impl FirstAllowed {
    /// Creates a union that denies everything.
    #[must_use]
    pub fn new() -> FirstAllowed {
        FirstAllowed::default()
    }

    /// Adds an authorizer after those that are there.
    #[must_use]
    pub fn or(mut self, authorizer: impl Authorizer) -> FirstAllowed {
        self.authorizers.push(Arc::new(authorizer));
        self
    }
}

impl Authorizer for FirstAllowed {
    fn authorize(&self, identity: &Identity, request: &RequestInfo) -> Decision {
        let mut reasons = Vec::new();
        for authorizer in &self.authorizers {
            match authorizer.authorize(identity, request) {
                Decision::Allowed => return Decision::Allowed,
                Decision::Denied { reason } if reason.is_empty() => {}
                Decision::Denied { reason } => reasons.push(reason),
            }
        }
        Decision::Denied {
            reason: reasons.join(", "),
        }
    }
}
