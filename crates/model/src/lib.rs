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
//! server calls it. What must hold in every state is in [`properties`].
//!
//! Two things are simpler than in a cluster, and allow more than it does:
//!
//! - The log is one total order of entries. Whatever was proposed may be committed at any
//!   later time, in any order, or be lost. That is what elections do to proposals, and what a
//!   deposed leader's proposals meet.
//! - Every voter may decide at any time from what it has applied, however old that is, also
//!   one with the mechanism off. The leader is one of them, and so is everybody who still
//!   believes to be.
//!
//! Not in here: how raft makes the log (simulated in the crate `sim`), and a leader that
//! knows nothing of cluster features. Tests and the command `explore` call it.

mod agreement;
mod beginning;
mod features;
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
pub use replica::{Entry, Params, Record, Records, Replica, Said};
pub use rules::{Applied, Decided, Rules};
pub use state::{Config, Machine, State};
