//! What a running cluster says about its feature gates, and what follows from it.
//!
//! ```text
//!  members ──▶ survey ──▶ picture (a fleet, and what had to be assumed) ──┬──▶ story  why, and what next
//!                                                                         └──▶ foresight  what a change would do
//! ```
//!
//! Only [`survey`] talks to servers. The rest is pure and uses the rules and the declarations the
//! servers use, so what it foresees is what will happen. The declarations are this program's own:
//! a newer portctl can tell an older cluster what an upgrade brings.

pub mod foresight;
pub mod picture;
pub mod story;
pub mod survey;

mod next;
mod votes;

#[cfg(test)]
mod tests;
