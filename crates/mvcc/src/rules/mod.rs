//! The semantics of requests, as pure functions of state.
//!
//! No threads, no clock, no files, no randomness: every member that holds the
//! same state returns the same result. The store calls these at apply, readers
//! call them for ranges, the API layer calls [`validate`] and [`quota`] before
//! it proposes. They access state only through [`KeyView`].

mod branches;
pub mod hash;
pub mod keep;
pub mod lease;
pub mod quota;
pub mod range;
pub mod txn;
pub mod validate;
mod view;

pub use view::{Copies, Entry, KeyView, ValueSource};
