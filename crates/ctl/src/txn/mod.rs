//! The language `txn` reads: one condition or one request per line.
//!
//! Pure; `command/txn.rs` reads the lines. The grammar is etcdctl's, with two differences: an
//! unknown operator and a lease condition, which make etcdctl crash, are an error and a condition.

pub mod compare;
pub mod request;
