//! What the transport needs from the member. The server implements it; tests do too.

use std::borrow::Cow;
use std::io;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use portunus_proto::raftpb::Message;
use thiserror::Error;

/// The member behind a transport. Called from the transport's tasks and from requests of
/// peers, never from inside [`Transport::send`](crate::Transport::send).
pub trait Raft: Send + Sync + 'static {
    /// Takes a message; must not block. A refused message is dropped, as if it had been
    /// lost on the way; the connection stays.
    fn step(&self, message: Message) -> Result<(), StepRefused>;

    /// Whether this member was removed from the cluster for good. Asked for every message,
    /// so it must be cheap. Only who is removed by this answer is ever told so.
    fn is_removed(&self, id: u64) -> bool;

    /// The name of a member, for log lines; `None` while it is not known.
    fn name_of(&self, id: u64) -> Option<String>;

    /// Messages to this member were lost.
    fn report_unreachable(&self, id: u64);

    /// What became of the last snapshot for this member.
    fn report_snapshot(&self, id: u64, delivered: bool);

    /// The database that goes with an outgoing snapshot message. May rewrite the message's
    /// snapshot, but not whom it is from and to.
    fn open_snapshot(&self, message: Message) -> BoxFuture<'static, io::Result<OutgoingSnapshot>>;

    /// Stores an incoming database durably, then steps the message that came with it. A
    /// body that was cut off ends with an error; one that ends without is whole.
    fn receive_snapshot(
        &self,
        message: Message,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, Result<(), SnapshotRefused>>;

    /// The member `by` says that this member was removed: it must stop. Called once per
    /// peer, until that peer takes something again.
    fn told_removed(&self, by: u64);
}

/// A snapshot on its way out.
pub struct OutgoingSnapshot {
    /// The message as it is to be sent.
    pub message: Message,
    /// The database file, piece by piece; an error cuts the upload off.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// A message that was not taken.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct StepRefused {
    /// Why, for the log.
    pub reason: Cow<'static, str>,
}

impl StepRefused {
    /// Refuses for this reason.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> StepRefused {
        StepRefused {
            reason: reason.into(),
        }
    }
}

/// A snapshot that was not taken; decides what its sender is answered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotRefused {
    /// It could not be stored or stepped; the sender tries again later (500).
    #[error("failed to save KV snapshot ({reason})")]
    Failed {
        /// What went wrong, for the sender's log.
        reason: String,
    },
    /// It does not fit this member, now or ever (412).
    #[error("{reason}")]
    Mismatch {
        /// What does not fit, for the sender's log.
        reason: String,
    },
    /// Its sender was removed from the cluster (403). Answered only if
    /// [`Raft::is_removed`] says so too, because the sender will stop for good.
    #[error("cannot process message from removed member")]
    SenderRemoved,
}
