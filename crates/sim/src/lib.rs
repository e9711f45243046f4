//! Proofs from the outside: what clients of a store were told, judged as a whole.
//!
//! [`linearizability`] is pure and knows only a history.

pub mod linearizability;
