//! Requests: what is asked for, and the parameters.

mod info;
mod query;

pub use info::*;
pub use query::*;
