//! Implements the transport's interface to this member.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use portunus_proto::raftpb::{Message, MessageType};
use portunus_rafthttp::{
    BoxFuture, BoxStream, OutgoingSnapshot, Raft, SnapshotRefused, StepRefused,
};

use super::{incoming, snapshot};
use crate::member::Member;
use portunus_statemachine::wrap::is_wrapped;

/// A member, as used by its transport.
pub struct PeerRaft {
    member: Arc<Member>,
}

impl PeerRaft {
    /// Creates the interface of a member.
    pub fn new(member: Arc<Member>) -> PeerRaft {
        PeerRaft { member }
    }
}

impl Raft for PeerRaft {
    fn step(&self, message: Message) -> Result<(), StepRefused> {
        if message.r#type() == MessageType::MsgSnap {
            // Raft would put a snapshot into the log whose database was never received.
            return Err(StepRefused::new(
                "a snapshot message without its database: snapshots come by /raft/snapshot",
            ));
        }
        // The proposing member has not applied the newest members yet. Its client retries.
        let has_wrapped = || message.entries.iter().any(|entry| is_wrapped(&entry.data));
        if message.r#type() == MessageType::MsgProp
            && has_wrapped()
            && !self.member.membership.load().all_propose()
        {
            return Err(StepRefused::new(
                "a member does not know cluster features and could not read this entry",
            ));
        }
        self.member
            .consensus
            .step(message)
            .map_err(|error| StepRefused::new(error.to_string()))
    }

    fn name_of(&self, id: u64) -> Option<String> {
        let membership = self.member.membership.load();
        let name = membership.get(id).map(|record| record.name.clone());
        name.filter(|name| !name.is_empty())
    }

    fn is_removed(&self, id: u64) -> bool {
        self.member.membership.load().is_removed(id)
    }

    fn report_unreachable(&self, id: u64) {
        self.member.consensus.report_unreachable(id);
    }

    fn report_snapshot(&self, id: u64, delivered: bool) {
        self.member.consensus.report_snapshot(id, delivered);
    }

    fn open_snapshot(&self, message: Message) -> BoxFuture<'static, io::Result<OutgoingSnapshot>> {
        let member = Arc::clone(&self.member);
        Box::pin(async move {
            if member.peers.replication_hold().holds_back(&message) {
                return Err(io::Error::other(
                    "it is not known yet whether the member knows cluster features",
                ));
            }
            snapshot::open(member, message).await
        })
    }

    fn receive_snapshot(
        &self,
        message: Message,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, Result<(), SnapshotRefused>> {
        Box::pin(incoming::receive(Arc::clone(&self.member), message, body))
    }

    fn report_removal(&self, by: u64) {
        tracing::error!(
            by = %format_args!("{by:x}"),
            "a peer says that this member was removed from the cluster"
        );
        self.member.stop_as_removed();
    }
}
