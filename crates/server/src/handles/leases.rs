//! The lessor and its clock.

use std::sync::MutexGuard;
use std::time::Instant;

use portunus_mvcc::lease::Lessor;
use portunus_statemachine::SharedLessor;

/// The lessor and its clock.
pub struct Leases {
    lessor: SharedLessor,
    started: Instant,
}

impl Leases {
    /// Starts the clock at zero.
    pub fn new(lessor: SharedLessor) -> Leases {
        Leases {
            lessor,
            started: Instant::now(),
        }
    }

    /// Milliseconds on the lessor's clock.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Locks the lessor, for one operation.
    pub fn lock(&self) -> MutexGuard<'_, Lessor> {
        self.lessor.lock()
    }
}
