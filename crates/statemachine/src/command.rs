//! The request of a log entry, decoded once.

use portunus_proto::etcdserverpb::{
    AlarmRequest, CompactionRequest, DeleteRangeRequest, InternalRaftRequest,
    LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, TxnRequest,
};
use portunus_proto::membershippb::{
    ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest,
};

/// What a request asks the state machine to do.
#[derive(Debug)]
pub(crate) enum Command {
    Cluster(ClusterCommand),
    Data(DataCommand),
}

/// A request about keys, leases or alarms.
#[derive(Debug)]
pub(crate) enum DataCommand {
    Put(PutRequest),
    DeleteRange(DeleteRangeRequest),
    Txn(TxnRequest),
    Compaction(CompactionRequest),
    LeaseGrant(LeaseGrantRequest),
    LeaseRevoke(LeaseRevokeRequest),
    LeaseCheckpoint(LeaseCheckpointRequest),
    Alarm(AlarmRequest),
    /// Changes nothing. Only the member that proposed it would answer it, and no member of this
    /// program proposes ranges.
    Range,
}

/// A request about the cluster itself. No alarm refuses it.
#[derive(Debug)]
pub(crate) enum ClusterCommand {
    Version(ClusterVersionSetRequest),
    MemberAttributes(ClusterMemberAttrSetRequest),
    Downgrade(DowngradeInfoSetRequest),
}

impl Command {
    /// Returns the command of a request; `None` for one that this version does not know.
    pub(crate) fn of(request: InternalRaftRequest) -> Option<Command> {
        let cluster = |command| Some(Command::Cluster(command));
        if let Some(set) = request.cluster_version_set {
            return cluster(ClusterCommand::Version(set));
        }
        if let Some(set) = request.cluster_member_attr_set {
            return cluster(ClusterCommand::MemberAttributes(set));
        }
        if let Some(set) = request.downgrade_info_set {
            return cluster(ClusterCommand::Downgrade(set));
        }
        DataCommand::of(request).map(Command::Data)
    }
}

impl DataCommand {
    fn of(request: InternalRaftRequest) -> Option<DataCommand> {
        let key = request.put.map(DataCommand::Put);
        let key = key
            .or_else(|| request.delete_range.map(DataCommand::DeleteRange))
            .or_else(|| request.txn.map(DataCommand::Txn))
            .or_else(|| request.compaction.map(DataCommand::Compaction));
        let lease = || {
            let grant = request.lease_grant.map(DataCommand::LeaseGrant);
            grant
                .or_else(|| request.lease_revoke.map(DataCommand::LeaseRevoke))
                .or_else(|| request.lease_checkpoint.map(DataCommand::LeaseCheckpoint))
        };
        key.or_else(lease)
            .or_else(|| request.alarm.map(DataCommand::Alarm))
            .or_else(|| request.range.map(|_| DataCommand::Range))
    }
}
