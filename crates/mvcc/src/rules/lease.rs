//! The lease look-up that the rules need.

use portunus_proto::LeaseId;

/// Answers whether a lease exists as of the entry being applied.
pub trait LeaseLookup {
    /// Whether the lease was granted and not revoked.
    fn exists(&self, lease: LeaseId) -> bool;
}

impl<F: Fn(LeaseId) -> bool> LeaseLookup for F {
    fn exists(&self, lease: LeaseId) -> bool {
        self(lease)
    }
}
