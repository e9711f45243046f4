//! The feature gates of a running cluster: why they have their values, and plans of changes.
//!
//! ```text
//!  members ──▶ collect ──▶ fleet (what is known, and what is assumed) ──┬──▶ explain  why, and the next command
//!                                                                      └──▶ plan     the effect of a change
//! ```
//!
//! Only [`collect`] sends requests. The rest is pure and uses the rules and the declarations of the
//! servers, so a plan matches what happens. The declarations are this program's own: a newer
//! portctl can plan the upgrade of an older cluster.

pub mod collect;
pub mod explain;
pub mod fleet;
pub mod plan;

mod member_flags;
mod next_command;

#[cfg(test)]
mod tests;
