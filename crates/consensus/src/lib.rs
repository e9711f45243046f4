//! Consensus of one member: raft, the order of the log, and the committed entries.
//!
//! The server proposes entries and applies committed ones; messages to and from peers are data.
//! Four layers, each usable without those below it:
//!
//! | module | what |
//! | --- | --- |
//! | [`core`] | raft as a state machine without threads, clock, disk or network |
//! | [`engine`] | the core with its writes under way: inputs to effects, without threads as well |
//! | the root: [`start`], [`Handle`] | the engine run for real, with a log, two threads and queues |
//! | [`bootstrap`] | how a member comes to its log: new, joining or coming back |
//!
//! This crate never decodes a normal entry, decides about members, touches the state machine,
//! opens a socket, or continues after a failed write.

pub mod bootstrap;
pub mod core;
mod driver;
pub mod engine;
mod raft_rs;
mod request_ids;

pub use crate::{
    core::{InitialState, Leadership, Role},
    driver::{
        Committed, CommittedReceiver, CompactError, Compacted, Config, FatalError, Handle, Hooks,
        LogWriter, NoPeers, PeerSink, Proposal, ProposalProgress, ProposalTicket, ProposeError,
        ReadIndexError, ReadIndexFuture, RecvTimeoutError, StartError, Status, start,
    },
    request_ids::RequestIds,
};
