//! The raft driver of one member.
pub mod bootstrap;
pub mod core;
mod raft_rs;
mod request_ids;
pub use request_ids::RequestIds;
