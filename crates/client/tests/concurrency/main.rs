//! Sessions, locks, elections and optimistic transactions with Portunus and with Go's etcd, and
//! together with etcdctl, which has clientv3's recipes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod elections;
mod locks;
mod sessions;
#[path = "../support/store.rs"]
mod store;
mod transactions;
