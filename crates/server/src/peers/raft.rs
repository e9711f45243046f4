//! Implements the transport's interface to this member.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use portunus_consensus::Handle;
use portunus_proto::raftpb::{Message, MessageType};
use portunus_rafthttp::{
    BoxFuture, BoxStream, OutgoingSnapshot, Raft, SnapshotRefused, StepRefused,
};

use super::incoming::Receiver;
use super::replication_hold::ReplicationHold;
use super::snapshot::SnapshotSource;
use crate::handles::stop::StopSwitch;
use crate::handles::{ClusterState, Process, StoreAccess};
use portunus_statemachine::membership::Membership;
use portunus_statemachine::wrap::is_wrapped;

/// A member, as used by its transport.
pub struct PeerRaft {
    process: Arc<Process>,
    cluster: Arc<ClusterState>,
    consensus: Handle,
    hold: Arc<ReplicationHold>,
    source: Arc<SnapshotSource>,
    receiver: Arc<Receiver>,
}

impl PeerRaft {
    /// Creates the interface of a member.
    pub fn new(
        process: Arc<Process>,
        store: Arc<StoreAccess>,
        cluster: Arc<ClusterState>,
        consensus: Handle,
        hold: Arc<ReplicationHold>,
    ) -> PeerRaft {
        PeerRaft {
            source: Arc::new(SnapshotSource {
                process: Arc::clone(&process),
                store: Arc::clone(&store),
                cluster: Arc::clone(&cluster),
            }),
            receiver: Arc::new(Receiver::new(
                Arc::clone(&process),
                store,
                consensus.clone(),
            )),
            process,
            cluster,
            consensus,
            hold,
        }
    }

    /// Returns the members as applied.
    pub(super) fn membership(&self) -> Arc<Membership> {
        self.cluster.membership_full()
    }

    /// Returns what ends the process.
    pub(super) fn stop(&self) -> Arc<StopSwitch> {
        Arc::clone(&self.process.stop)
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
            && !self.cluster.membership().all_propose()
        {
            return Err(StepRefused::new(
                "a member does not know cluster features and could not read this entry",
            ));
        }
        self.consensus
            .step(message)
            .map_err(|error| StepRefused::new(error.to_string()))
    }

    fn name_of(&self, id: u64) -> Option<String> {
        let membership = self.cluster.membership();
        let name = membership.get(id).map(|record| record.name.clone());
        name.filter(|name| !name.is_empty())
    }

    fn is_removed(&self, id: u64) -> bool {
        self.cluster.membership().is_removed(id)
    }

    fn report_unreachable(&self, id: u64) {
        self.consensus.report_unreachable(id);
    }

    fn report_snapshot(&self, id: u64, delivered: bool) {
        self.consensus.report_snapshot(id, delivered);
    }

    fn open_snapshot(&self, message: Message) -> BoxFuture<'static, io::Result<OutgoingSnapshot>> {
        let (hold, source) = (Arc::clone(&self.hold), Arc::clone(&self.source));
        Box::pin(async move {
            if hold.holds_back(&message) {
                return Err(io::Error::other(
                    "it is not known yet whether the member knows cluster features",
                ));
            }
            source.open(message).await
        })
    }

    fn receive_snapshot(
        &self,
        message: Message,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, Result<(), SnapshotRefused>> {
        let receiver = Arc::clone(&self.receiver);
        Box::pin(async move { receiver.receive(message, body).await })
    }

    fn report_removal(&self, by: u64) {
        tracing::error!(
            by = %format_args!("{by:x}"),
            "a peer says that this member was removed from the cluster"
        );
        self.process.stop_as_removed();
    }
}
