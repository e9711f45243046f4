//! Whole clusters in one thread: the real core and the real log, everything around them made
//! up from one seed.
//!
//! ```text
//!  scenario (from the seed) ──▶ world: one queue of events in virtual time
//!                                 │ ticks, messages, writes, applies, clients, faults
//!                                 ▼
//!     member: Core ──▶ jobs ──▶ Wal ──▶ disk (in memory, loses power)
//!        │                                │
//!        └── everything it says ──▶ witness, shadow: what must stay true
//! ```
//!
//! [`run`] plays one seed: faults for a while, then none, and then the cluster must come
//! together. The same scenario gives the same events, so a failure is looked at by running
//! it again with [`run_with_trace`]. Tests and the `simulate` command call it. Nothing here
//! reads a clock, a file or a socket.

// A violation ends the run, so its size costs nothing.
#![allow(clippy::result_large_err)]

mod disk;
mod gates;
mod member;
mod planted;
mod report;
mod scenario;
mod shadow;
mod shrink;
mod state;
mod violation;
mod witness;
mod world;

pub use planted::PlantedBug;
pub use report::{Failure, Report};
pub use scenario::{Class, Scenario, UnknownClass};
pub use shrink::shrink;
pub use violation::Violation;

use world::World;

/// Plays a scenario.
///
/// # Errors
/// The first rule that was broken.
pub fn run(scenario: &Scenario, bug: Option<PlantedBug>) -> Result<Report, Failure> {
    World::new(scenario, bug, None).run()
}

/// The same, telling every event.
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
