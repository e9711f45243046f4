//! Black-box checks of a store: whether all answers, events and files are consistent.
//!
//! ```text
//!  clients ──▶ history ──▶ linearizability     does one order explain every answer?
//!  watchers ─▶ events ───▶ watch_events        every change once and in order?
//!  log + backend ────────▶ at_rest             do the files match the answers?
//!        └──────────── torture: all three, while the process is killed ────┘
//! ```
//!
//! [`linearizability`] and [`watch_events`] are pure. [`torture`] runs a real binary; tests
//! of the server and the command of the same name call it. No server depends on this crate.

pub mod at_rest;
pub mod cluster;
pub mod linearizability;
mod random;
pub mod torture;
pub mod watch_events;
pub mod wire;
