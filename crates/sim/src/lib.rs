//! Proofs from the outside: what a store told its clients, judged as a whole.
//!
//! ```text
//!  clients ──▶ history ──▶ linearizability     one order that explains every answer?
//!  watchers ─▶ events ───▶ watch_events        every change once, in order, whole?
//!  log + backend ────────▶ at_rest             does the disk say what clients were told?
//!        └──────────── torture: all three, while the process is killed ────────────┘
//! ```
//!
//! [`linearizability`] and [`watch_events`] are pure. [`torture`] runs a real binary; tests
//! of the server and the command of the same name call it. Nothing here is part of a server.

pub mod at_rest;
pub mod cluster;
pub mod linearizability;
mod random;
pub mod torture;
pub mod watch_events;
pub mod wire;
