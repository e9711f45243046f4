//! Kinds of requests.

use portunus_proto::etcdserverpb::InternalRaftRequest;

/// The kind of a request, as etcd's metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A range.
    Range,
    /// A transaction that changes nothing.
    ReadonlyTxn,
    /// A put.
    Put,
    /// A delete.
    DeleteRange,
    /// A transaction.
    Txn,
    /// A compaction.
    Compaction,
    /// The grant of a lease.
    LeaseGrant,
    /// The revocation of a lease.
    LeaseRevoke,
    /// The remaining life of leases.
    LeaseCheckpoint,
    /// An alarm.
    Alarm,
    /// The cluster version.
    ClusterVersionSet,
    /// The attributes of a member.
    ClusterMemberAttrSet,
    /// A downgrade.
    DowngradeInfoSet,
    /// Anything else.
    Unknown,
}

impl Operation {
    /// The number of kinds.
    pub const COUNT: usize = Operation::Unknown as usize + 1;

    /// The label that etcd's metrics have for the kind.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns the kind of a request for the log.
    pub fn of(request: &InternalRaftRequest) -> Operation {
        match request {
            InternalRaftRequest { put: Some(_), .. } => Operation::Put,
            InternalRaftRequest { txn: Some(_), .. } => Operation::Txn,
            InternalRaftRequest {
                delete_range: Some(_),
                ..
            } => Operation::DeleteRange,
            InternalRaftRequest { range: Some(_), .. } => Operation::Range,
            InternalRaftRequest {
                compaction: Some(_),
                ..
            } => Operation::Compaction,
            InternalRaftRequest {
                lease_grant: Some(_),
                ..
            } => Operation::LeaseGrant,
            InternalRaftRequest {
                lease_revoke: Some(_),
                ..
            } => Operation::LeaseRevoke,
            InternalRaftRequest {
                lease_checkpoint: Some(_),
                ..
            } => Operation::LeaseCheckpoint,
            InternalRaftRequest { alarm: Some(_), .. } => Operation::Alarm,
            InternalRaftRequest {
                cluster_version_set: Some(_),
                ..
            } => Operation::ClusterVersionSet,
            InternalRaftRequest {
                cluster_member_attr_set: Some(_),
                ..
            } => Operation::ClusterMemberAttrSet,
            InternalRaftRequest {
                downgrade_info_set: Some(_),
                ..
            } => Operation::DowngradeInfoSet,
            _ => Operation::Unknown,
        }
    }
}

/// In the order of [`Operation`].
const NAMES: [&str; Operation::COUNT] = [
    "Range",
    "ReadonlyTxn",
    "Put",
    "DeleteRange",
    "Txn",
    "Compaction",
    "LeaseGrant",
    "LeaseRevoke",
    "LeaseCheckpoint",
    "Alarm",
    "ClusterVersionSet",
    "ClusterMemberAttrSet",
    "DowngradeInfoSet",
    "unknown",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_operations() {
        for (operation, name) in [
            (Operation::Range, "Range"),
            (Operation::LeaseCheckpoint, "LeaseCheckpoint"),
            (Operation::DowngradeInfoSet, "DowngradeInfoSet"),
            (Operation::Unknown, "unknown"),
        ] {
            assert_eq!(operation.name(), name);
        }
    }
}
