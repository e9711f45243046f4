//! Lists at one revision, namespaces, ordered views, verified snapshots and missing capabilities, with
//! Portunus and with Go's etcd.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capabilities;
mod lists;
mod namespaces;
mod ordering;
mod snapshots;
#[path = "../support/store.rs"]
mod store;
