//! The interface from the transport to the member. The server and the tests implement it.

use std::borrow::Cow;
use std::io;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use portunus_proto::raftpb::Message;
use thiserror::Error;

/// The member that uses a transport. Called from the transport's tasks and from requests of
/// peers, never from inside [`Transport::send`](crate::Transport::send).
pub trait Raft: Send + Sync + 'static {
    /// Processes a message; must not block. A refused message is dropped as if lost in
    /// transit; the connection stays open.
    fn step(&self, message: Message) -> Result<(), StepRefused>;

    /// Returns whether a member was permanently removed from the cluster. Called for every
    /// message, so it must be cheap. Only members for which it returns true get an answer
    /// that makes them stop.
    fn is_removed(&self, id: u64) -> bool;

    /// Returns the name of a member for log lines; `None` while it is unknown.
    fn name_of(&self, id: u64) -> Option<String>;

    /// Reports that messages to this member were lost.
    fn report_unreachable(&self, id: u64);

    /// Reports whether the last snapshot for this member was delivered.
    fn report_snapshot(&self, id: u64, delivered: bool);

    /// Opens the database for an outgoing snapshot message. May rewrite the message's
    /// snapshot, but not its `from` and `to`.
    fn open_snapshot(&self, message: Message) -> BoxFuture<'static, io::Result<OutgoingSnapshot>>;

    /// Stores an incoming database durably, then steps its message. A truncated body ends
    /// with an error; a body that ends without one is complete.
    fn receive_snapshot(
        &self,
        message: Message,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, Result<(), SnapshotRefused>>;

    /// Reports that member `by` answered that this member was removed, so it must stop.
    /// Called once per peer until a request to that peer succeeds again.
    fn report_removal(&self, by: u64);
}

/// A snapshot to send.
pub struct OutgoingSnapshot {
    /// The message to send.
    pub message: Message,
    /// The database file in pieces; an error aborts the upload.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// A message that the member refused.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct StepRefused {
    /// The reason, for the log.
    pub reason: Cow<'static, str>,
}

impl StepRefused {
    /// A refusal with this reason.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> StepRefused {
        StepRefused {
            reason: reason.into(),
        }
    }
}

/// A snapshot that the member refused; determines the status of the answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotRefused {
    /// Storing or stepping it failed; the sender retries later (500).
    #[error("failed to save KV snapshot ({reason})")]
    Failed {
        /// The cause, for the sender's log.
        reason: String,
    },
    /// It can never be installed on this member (412).
    #[error("{reason}")]
    Mismatch {
        /// The cause, for the sender's log.
        reason: String,
    },
    /// Its sender was removed from the cluster (403). Sent only if [`Raft::is_removed`]
    /// agrees, because the sender then stops permanently.
    #[error("cannot process message from removed member")]
    SenderRemoved,
}
