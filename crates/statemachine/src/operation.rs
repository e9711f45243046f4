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
    /// A login.
    Authenticate,
    /// Enabling authentication.
    AuthEnable,
    /// Disabling authentication.
    AuthDisable,
    /// A new user.
    AuthUserAdd,
    /// The deletion of a user.
    AuthUserDelete,
    /// A new password.
    AuthUserChangePassword,
    /// The grant of a role.
    AuthUserGrantRole,
    /// The revocation of a role.
    AuthUserRevokeRole,
    /// A new role.
    AuthRoleAdd,
    /// The deletion of a role.
    AuthRoleDelete,
    /// The grant of a permission.
    AuthRoleGrantPermission,
    /// The revocation of a permission.
    AuthRoleRevokePermission,
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
            _ => Operation::of_auth(request),
        }
    }
}

impl Operation {
    fn of_auth(request: &InternalRaftRequest) -> Operation {
        let fields = [
            (request.authenticate.is_some(), Operation::Authenticate),
            (request.auth_enable.is_some(), Operation::AuthEnable),
            (request.auth_disable.is_some(), Operation::AuthDisable),
            (request.auth_user_add.is_some(), Operation::AuthUserAdd),
            (
                request.auth_user_delete.is_some(),
                Operation::AuthUserDelete,
            ),
            (
                request.auth_user_change_password.is_some(),
                Operation::AuthUserChangePassword,
            ),
            (
                request.auth_user_grant_role.is_some(),
                Operation::AuthUserGrantRole,
            ),
            (
                request.auth_user_revoke_role.is_some(),
                Operation::AuthUserRevokeRole,
            ),
            (request.auth_role_add.is_some(), Operation::AuthRoleAdd),
            (
                request.auth_role_delete.is_some(),
                Operation::AuthRoleDelete,
            ),
            (
                request.auth_role_grant_permission.is_some(),
                Operation::AuthRoleGrantPermission,
            ),
            (
                request.auth_role_revoke_permission.is_some(),
                Operation::AuthRoleRevokePermission,
            ),
        ];
        let field = fields.into_iter().find(|(is_some, _)| *is_some);
        field.map_or(Operation::Unknown, |(_, operation)| operation)
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
    "Authenticate",
    "AuthEnable",
    "AuthDisable",
    "AuthUserAdd",
    "AuthUserDelete",
    "AuthUserChangePassword",
    "AuthUserGrantRole",
    "AuthUserRevokeRole",
    "AuthRoleAdd",
    "AuthRoleDelete",
    "AuthRoleGrantPermission",
    "AuthRoleRevokePermission",
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
            (Operation::AuthRoleDelete, "AuthRoleDelete"),
            (Operation::Unknown, "unknown"),
        ] {
            assert_eq!(operation.name(), name);
        }
    }
}
