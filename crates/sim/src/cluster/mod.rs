//! Whole clusters in one thread: the real core and the real log; everything else is simulated
//! from one seed.
//!
//! ```text
//!  scenario (from the seed) ──▶ world: one queue of events in virtual time
//!                                 │ ticks, messages, writes, applies, clients, faults
//!                                 ▼
//!     member: Core ──▶ jobs ──▶ Wal ──▶ disk (in memory, loses power)
//!        │                                │
//!        └── messages, commits, state ──▶ invariants, shadow
//! ```
//!
//! [`run`] runs one scenario: first with faults, then without, and then the cluster must
//! converge. The same scenario produces the same events, so a failure can be traced by running
//! it again with [`run_with_trace`]. Tests and the `simulate` command call it. This module
//! never reads a clock, a file or a socket.

// A violation ends the run, so its size does not matter.
#![allow(clippy::result_large_err)]

mod disk;
mod gates;
mod invariants;
mod member;
mod planted;
mod report;
mod scenario;
mod shadow;
mod shrink;
mod state;
mod violation;
mod world;

pub use planted::PlantedBug;
pub use report::{Failure, Report};
pub use scenario::{Class, Scenario, UnknownClass};
pub use shrink::shrink;
pub use violation::Violation;

use world::World;

/// Runs a scenario.
///
/// # Errors
/// The first violated invariant.
pub fn run(scenario: &Scenario, bug: Option<PlantedBug>) -> Result<Report, Failure> {
    World::new(scenario, bug, None).run()
}

/// Runs a scenario and passes every event to `trace`.
///
/// # Errors
/// As [`run`].
pub fn run_with_trace(
    scenario: &Scenario,
    bug: Option<PlantedBug>,
    trace: &mut dyn FnMut(String),
) -> Result<Report, Failure> {
    World::new(scenario, bug, Some(trace)).run()
}
