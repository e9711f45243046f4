//! kube-rs against the server: a struct of `kube-derive`, served from its custom resource
//! definition.
//!
//! | module | concept |
//! | --- | --- |
//! | `gadget` | the resource, a server of it and its client |
//! | `verbs` | `Api`: every verb |
//! | `watches` | `watcher`, `reflector` and `Controller` while the store changes and is compacted |
//! | `restarts` | `watcher` and `reflector` while the program is killed and started again |
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod gadget;
#[cfg(feature = "program")]
mod restarts;
mod verbs;
mod watches;
