//! Whole clusters in one thread: the shipped engine, log, state machine, store, watch hub and
//! lessor; time, disk, network and clients are simulated from one seed.
//!
//! ```text
//!  scenario (from the seed) ──▶ world: one queue of events in virtual time
//!                                 │ ticks, messages, writes, applies, clients, faults
//!                                 ▼
//!     member: Engine ──▶ batches ──▶ Wal ──▶ disk (in memory, loses power)
//!        │ committed
//!        └──▶ StateMachine ──▶ Store ──▶ backend (in memory, commits when called)
//!                  │   └─────▶ Hub (watches), Lessor (leases)
//!                  ▼
//!        invariants (members among each other), oracle (clients against a sequential model)
//! ```
//!
//! [`run`] runs one scenario: first with faults, then without, and then the cluster must
//! converge. The same scenario produces the same events, so a failure can be traced by running
//! it again with [`run_with_trace`]. Tests and the `simulate` command call it. This module
//! never reads a clock, a file or a socket.

// A violation ends the run, so its size does not matter.
#![allow(clippy::result_large_err)]

mod client;
mod disk;
mod invariants;
mod member;
mod oracle;
mod planted;
mod report;
mod scenario;
mod shadow;
mod shrink;
mod users;
mod violation;
mod watcher;
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
