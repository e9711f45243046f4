//! Consensus of one member: raft, the order of the log, and what is committed.
//!
//! The server proposes entries and applies what comes back committed; peers'
//! messages go in and out as data. Four layers, each usable without those
//! below it:
//!
//! | module | what |
//! | --- | --- |
//! | [`core`] | raft as a state machine without threads, clock, disk or network |
//! | [`engine`] | the core with its writes under way: inputs to effects, without threads as well |
//! | the root: [`start`], [`Handle`] | the engine run for real, with a log, two threads and queues |
//! | [`bootstrap`] | how a member comes to its log: new, joining or coming back |
//!
//! What it never does: look into a normal entry, decide about members, touch
//! the state machine, open a socket, or go on after a failed write.

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
