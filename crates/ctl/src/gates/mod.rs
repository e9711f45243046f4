//! The feature gates of a running cluster: why they have their values, and plans of changes.
//!
//! ```text
//!  members ──▶ survey ──▶ picture (a fleet, and what had to be assumed) ──┬──▶ story  why, and what next
//!                                                                         └──▶ foresight  what a change would do
//! ```
//!
//! Only [`survey`] sends requests. The rest is pure and uses the rules and the declarations of the
//! servers, so a plan matches what happens. The declarations are this program's own: a newer
//! portctl can plan the upgrade of an older cluster.

pub mod foresight;
pub mod picture;
pub mod story;
pub mod survey;

mod next;
mod votes;

#[cfg(test)]
mod tests;
