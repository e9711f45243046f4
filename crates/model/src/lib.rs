//! The agreement about cluster features, explored exhaustively.
//!
//! ```text
//!  machine: flags ─ publish ─┐                      ┌─▶ apply ─▶ replica (one per machine)
//!  machine: flags ─ publish ─┼─▶ pending ─ commit ─▶ log
//!  any voter: ──── decide ───┘      └─ lose ─▶        └─▶ apply ─▶ replica
//! ```
//!
//! [`Agreement`] is a model for the checker `stateright`: every order of publishing,
//! deciding, losing, applying, restarting with other flags or another version, adding,
//! promoting and removing members, up to a [`Limits`]. The rules are not copied: what is
//! published, decided and applied comes from [`portunus_gates::cluster`], called the way the
//! server calls it. [`properties`] has the invariants.
//!
//! The model is simpler than a cluster in two points, and allows more than a cluster does:
//!
//! - The log is one total order of entries. A proposal may be committed at any later time, in
//!   any order, or be lost, as happens to the proposals of a deposed leader.
//! - Every voter may decide at any time from the entries it has applied, even if it is far
//!   behind or has ClusterFeatureGate off. This covers the leader and deposed leaders.
//!
//! Not modelled: how raft makes the log (simulated in the crate `sim`), and a leader that
//! does not know cluster features. Tests and the command `explore` run the model.

mod agreement;
mod features;
mod initial_states;
mod limits;
mod planted;
pub mod properties;
mod replica;
mod rules;
mod state;
mod symmetry;

pub use agreement::{Action, Agreement};
pub use limits::{Limits, Start};
pub use planted::PlantedBug;
pub use replica::{Attributes, Entry, Params, Record, Records, Replica};
pub use rules::{ParamsEffect, ParamsProposal, Rules};
pub use state::{Config, Machine, State};
