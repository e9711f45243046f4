//! Selectors: which objects a list, watch or deletion is about.
//!
//! Label selectors compare labels, field selectors compare a few declared fields. Both are
//! parsed from the text form of a query, with the error texts of Kubernetes.

mod fields;
mod labels;
mod lexer;

pub use fields::*;
pub use labels::*;
