//! The lease look-up that the rules need.

/// The id that means "no lease".
pub const NO_LEASE: i64 = 0;

/// Answers whether a lease exists as of the entry being applied.
pub trait LeaseLookup {
    /// Whether the lease was granted and not revoked.
    fn exists(&self, lease: i64) -> bool;
}

impl<F: Fn(i64) -> bool> LeaseLookup for F {
    fn exists(&self, lease: i64) -> bool {
        self(lease)
    }
}
