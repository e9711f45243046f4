//! What a committed log entry does: the replicated state machine of one member.
//!
//! ```text
//!              ┌──────────── StateMachine ────────────┐
//!  entry ─────▶│ decode ─▶ guards ─▶ change ─▶ store   │──▶ Applied: answer, watch events,
//!  Local ─────▶│ (Command) (alarms,   (mvcc, leases,   │            effects as data
//!              │            quota)     membership)     │
//!              └───────────────────────────────────────┘
//! ```
//!
//! The apply thread of the server feeds it the committed entries in log order and carries out
//! the effects: it configures raft, publishes the new membership, raises alarms, starts
//! compactions. The simulator does the same.
//!
//! Invariants:
//! - What is stored depends only on the entry and on the state before it. [`Local`] and
//!   [`Settings`] hold the few local inputs; each field names what it may influence. A test
//!   applies the same log with different local inputs and compares the state.
//! - The values of cluster features for an entry are those that entries before it decided.
//! - An entry is applied whole or not at all. What cannot be applied is an [`EntryError`], and
//!   the member stops.
//! - Nothing here reads a clock, draws a random number, opens a file or a socket, or starts a
//!   thread or a task.

pub mod alarms;
mod apply;
mod command;
pub mod conf_state;
pub mod decision;
pub mod decision_cause;
mod effect;
mod entry_error;
pub mod feature_data;
mod gated;
mod lessor;
pub mod membership;
mod operation;
pub mod params;
mod state;
pub mod v2_request;
pub mod v2_store;
pub mod wrap;

pub use apply::{LEASE_COST_BYTES, Local, Settings, SnapshotRequest, StateMachine};
pub use effect::{Answer, Applied, Effect, Response};
pub use entry_error::EntryError;
pub use lessor::SharedLessor;
pub use operation::Operation;
pub use state::{LoadError, State};
