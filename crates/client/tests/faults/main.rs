//! Sessions, locks, watches and writes while members are killed, leaders change and networks fail: no
//! event is lost or repeated, no write is made twice, and no two holders have a lock.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod elections;
mod lists;
mod locks;
mod nemesis;
#[path = "../support/store.rs"]
mod store;
mod watches;
mod writes;
